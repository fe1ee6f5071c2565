//! Tries every mechanism on every pair of endpoints that it claims to support.

use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write, path::Path};
use thalweg_core::{
    Kind, MECHANISMS, Mechanism, Pair, Role,
    alias::{self, Alias},
    probe,
    scratch::ScratchSite,
};

use crate::output::{
    pairs,
    table::{render, table},
};

/// The results of one mechanism.
#[derive(Debug, Serialize)]
pub struct TriedMechanism {
    name: &'static str,
    works: Vec<Works>,
    fails: Vec<Fails>,
}

#[derive(Debug, Serialize)]
struct Works {
    source: Kind,
    sink: Kind,
    // Result of the test for shared pages. Null if the test does not apply: the source no longer exists, or the sink
    // cannot be inspected.
    alias: Option<Alias>,
    // `true` if the sink shows later changes of the source although the mechanism guarantees a stable copy.
    broken_promise: bool,
}

#[derive(Debug, Serialize)]
struct Fails {
    source: Kind,
    sink: Kind,
    reason: String,
}

/// Tries all mechanisms, with files in `folder`.
pub fn all(folder: &Path) -> Vec<TriedMechanism> {
    let site = ScratchSite::at(folder);
    let movers = MECHANISMS.iter().filter(|m| m.info().role != Role::Harness);
    movers.map(|mechanism| tried(*mechanism, &site)).collect()
}

fn tried(mechanism: &dyn Mechanism, site: &ScratchSite) -> TriedMechanism {
    let (mut works, mut fails) = (Vec::new(), Vec::new());
    for (pair, answer) in probe::all(mechanism, site) {
        let Pair { source, sink, gives, .. } = pair;
        match answer {
            Ok(()) => {
                let asked = alias::applies(pair).then(|| alias::probe(mechanism, pair, site).ok());
                let alias = asked.flatten();
                let broken_promise = gives.stable && alias == Some(Alias::Shared);
                works.push(Works { source, sink, alias, broken_promise });
            }
            Err(unfit) => fails.push(Fails { source, sink, reason: unfit.reason }),
        }
    }
    TriedMechanism { name: mechanism.info().name, works, fails }
}

/// Summarizes the results, before the details.
pub fn answer(tried: &[TriedMechanism]) -> String {
    let names = |is: fn(&&TriedMechanism) -> bool| -> Vec<&str> {
        tried.iter().filter(is).map(|mechanism| mechanism.name).collect()
    };
    let (nowhere, broken) = (
        names(|mechanism| mechanism.works.is_empty()),
        names(|mechanism| mechanism.works.iter().any(|works| works.broken_promise)),
    );
    let mut text =
        format!("{} of {} methods work here\n", tried.len() - nowhere.len(), tried.len());
    if !broken.is_empty() {
        let _ = writeln!(
            text,
            "do not use {}: later changes of the source change its copy (-v shows where)",
            broken.join(", ")
        );
    }
    for mechanism in tried.iter().filter(|mechanism| mechanism.works.is_empty()) {
        let reasons: Vec<&str> = by_reason(&mechanism.fails).into_keys().collect();
        let _ = writeln!(text, "{} does not work: {}", mechanism.name, reasons.join("; "));
    }
    text
}

/// Formats the pairs that work, and the reasons for those that do not.
pub fn printed(tried: &[TriedMechanism]) -> String {
    let mut rows = table(&[]);
    for mechanism in tried {
        let works: Vec<_> = mechanism.works.iter().map(|w| (w.source, w.sink)).collect();
        let works = if works.is_empty() { "nowhere".to_owned() } else { pairs::brief(&works) };
        rows.add_row([format!("  {}", mechanism.name), "works".to_owned(), works]);
        for (reason, failing) in by_reason(&mechanism.fails) {
            let text = format!("{}: {reason}", pairs::brief(&failing));
            rows.add_row([String::new(), "fails".to_owned(), text]);
        }
    }
    render(&rows)
}

/// Formats the pairs on which each mechanism copied, and those on which it shared pages with the source.
pub fn aliases_printed(tried: &[TriedMechanism]) -> String {
    let mut rows = table(&[]);
    for mechanism in tried {
        for (alias, word) in [(Alias::Copied, "copied"), (Alias::Shared, "shared")] {
            let found = mechanism.works.iter().filter(|w| w.alias == Some(alias));
            let found: Vec<_> = found.map(|w| (w.source, w.sink)).collect();
            if !found.is_empty() {
                rows.add_row([
                    format!("  {}", mechanism.name),
                    word.to_owned(),
                    pairs::brief(&found),
                ]);
            }
        }
        let broken = mechanism.works.iter().filter(|w| w.broken_promise);
        let broken: Vec<_> = broken.map(|w| (w.source, w.sink)).collect();
        if !broken.is_empty() {
            let text = format!("{}: do not use", pairs::brief(&broken));
            rows.add_row([format!("  {}", mechanism.name), "BROKEN GUARANTEE".to_owned(), text]);
        }
    }
    render(&rows)
}

fn by_reason(fails: &[Fails]) -> BTreeMap<&str, Vec<(Kind, Kind)>> {
    let mut reasons: BTreeMap<&str, Vec<(Kind, Kind)>> = BTreeMap::new();
    for fail in fails {
        reasons.entry(&fail.reason).or_default().push((fail.source, fail.sink));
    }
    reasons
}
