//! Adds the sessions of a later run to a saved result of the same study and machine.
//!
//! Each session is a process of its own, and a ratio is formed within a session. So sessions of another day count like
//! the first ones, for the cells that the later run measured.

use super::{
    evaluation::{judge, set_figures},
    file::StudyFile,
    result::{ArmResult, Extension, Missing, ProbeResult, StudyResult, StudyText},
    store::Loaded,
};
use std::path::Path;
use thalweg_measure::conditions::Conditions;

/// Returns the reason why sessions of a run of `study` on this machine cannot be added to a result. `at`: the directory
/// under test. `pinned`: the CPUs to which the arms are pinned.
pub fn obstacle(
    study: &StudyFile,
    saved: &StudyResult,
    at: &Path,
    pinned: &[usize],
) -> Option<String> {
    if saved.study != study.id {
        return Some(format!("the result is of study {}, not of {}", saved.study, study.id));
    }
    let named = |fact: &dyn Fn(&str) -> Option<String>| {
        let [cpu, cores, kernel] =
            ["cpu", "cores", "kernel"].map(|key| fact(key).unwrap_or_else(|| "?".to_owned()));
        format!("{cpu}, {cores} cores, Linux {kernel}")
    };
    let now = Conditions::now(&[at]);
    let here = |key: &str| {
        let mut facts = now.machine.iter();
        facts.find(|(name, _)| *name == key).map(|(_, v)| v.to_owned())
    };
    let there = |key: &str| saved.conditions["machine"][key].as_str().map(str::to_owned);
    let (other, this) = (named(&there), named(&here));
    if other != this {
        return Some(format!("the result is from {other}, and this machine is {this}"));
    }
    if saved.protocol.pinned != pinned {
        let [then, now] = [&saved.protocol.pinned, pinned].map(|cpus| match cpus {
            [] => "not pinned".to_owned(),
            cpus => format!("pinned to the CPUs {cpus:?}"),
        });
        return Some(format!("the variants of the result are {then}, and those of this run {now}"));
    }
    let then = saved.conditions["file_systems"].as_array().into_iter().flatten();
    let then: Vec<&str> = then.filter_map(|mount| mount[1].as_str()).collect();
    let now: Vec<&str> = now.file_systems.iter().map(|[_, name, _]| name.as_str()).collect();
    (then != now).then(|| {
        let [then, now] = [then, now].map(|names| match names[..] {
            [] => "an unknown file system".to_owned(),
            _ => names.join(", "),
        });
        format!("the result was measured on {then}, and --at is on {now}")
    })
}

/// Returns `true` if the sessions of `more` are already part of a result. They are if the run was added, but its saved
/// sessions could not be removed, and the same command was given again.
pub fn has_sessions_of(saved: &StudyResult, more: &StudyResult) -> bool {
    // Short runs may begin in the same second, but their commands name different seeds.
    let added = saved.protocol.extensions.iter().map(|added| (&added.began, &added.command));
    let first = (&saved.protocol.began, &saved.protocol.command);
    let more = (&more.protocol.began, &more.protocol.command);
    added.chain([first]).any(|run| run == more)
}

/// Adds the sessions of `more` to `saved`, numbered after its own, and judges the claims again.
pub fn extend(by: &Loaded, saved: &StudyResult, more: StudyResult) -> StudyResult {
    let study = &by.study;
    let mut result = saved.clone();
    let first = result.protocol.all_sessions();
    let mut cells: Vec<String> = more.costs.iter().map(|cost| cost.place.cell.clone()).collect();
    cells.dedup();
    for arm in more.arms {
        add_arm(&mut result.arms, arm, first);
    }
    for probe in more.probes {
        add_probe(&mut result.probes, probe, first);
    }
    let known = result.missing.clone();
    let is_new = |missing: &Missing| {
        !known.iter().any(|known| known.arm == missing.arm && known.place == missing.place)
    };
    result.missing.extend(more.missing.into_iter().filter(is_new));
    for cost in more.costs {
        match result.costs.iter_mut().find(|known| known.place == cost.place) {
            Some(known) => known.seconds += cost.seconds,
            None => result.costs.push(cost),
        }
    }
    result.protocol.extensions.push(Extension {
        cells,
        sessions: more.protocol.sessions,
        rounds: more.protocol.rounds,
        command: more.protocol.command,
        began: more.protocol.began,
        took_seconds: more.protocol.took_seconds,
        text: more.text.and_then(|text| text.ran),
    });
    let place = |cell: &str| study.cells.iter().position(|known| known.name == cell);
    result.arms.sort_by_key(|arm| place(&arm.place.cell));
    result.costs.sort_by_key(|cost| place(&cost.place.cell));
    let ran = result.text.take().and_then(|text| text.ran);
    result.text = Some(StudyText { ran, judged: by.hash() });
    judge(study, &mut result);
    result
}

fn add_arm(all: &mut Vec<ArmResult>, mut arm: ArmResult, first: usize) {
    arm.sessions.iter_mut().for_each(|session| session.session += first);
    let same = |known: &&mut ArmResult| known.name == arm.name && known.place == arm.place;
    match all.iter_mut().find(same) {
        Some(known) => {
            known.sessions.append(&mut arm.sessions);
            known.marked += arm.marked;
            set_figures(known);
        }
        None => all.push(arm),
    }
}

fn add_probe(all: &mut Vec<ProbeResult>, mut probe: ProbeResult, first: usize) {
    probe.sessions.iter_mut().for_each(|session| session.session += first);
    let same = |known: &&mut ProbeResult| {
        known.claim == probe.claim && known.probe == probe.probe && known.with == probe.with
    };
    match all.iter_mut().find(same) {
        Some(known) => known.sessions.append(&mut probe.sessions),
        None => all.push(probe),
    }
}
