//! `thalweg plan`: the planner's verdicts, printed.

mod args;
mod processes;

use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use thalweg_core::{
    Facts, Judgement, Kind, MECHANISMS, Pair, Plan, Request, Role, Tuning, Unfit, Verdict,
    bands::Band,
    mechanisms::LAST_RESORT,
    probe,
    profile::{Evidence, SinkState, day},
    quantity::Size,
    scratch::ScratchSite,
};

pub use args::PlanArgs;

use super::Subcommand;
use crate::{
    endpoint_arg::EndpointArg,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        paint, quantity,
        ratio::{NOT_ENOUGH, says_nothing},
        table::{render, table},
        text::{print, print_json},
    },
    profile::SavedProfile,
};

impl Subcommand for PlanArgs {
    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        if let Some(facts) = processes::facts(self) {
            return processes::run(self, &facts, color);
        }
        let source = EndpointArg::of_source(&self.source)?;
        let sink = EndpointArg::of_sink(&self.sink)?;
        let facts = Facts {
            source: source.facts.clone(),
            sink: sink.facts.clone(),
            len: self.size.or(source.size),
            needs: self.choice.needs(),
        };
        let mut request = Request { stepwise: self.stepwise, ..self.choice.request() };
        let untried = try_all(&source, &sink, &mut request).err();
        let saved = SavedProfile::find(!self.choice.no_profile);
        let plan = Plan::make(&facts, &request, saved.current.as_ref());
        let [kernels, fills] = kernels(&facts, &request, &saved);
        if self.json {
            print_json(&json!({
                "source": endpoint_json(&source), "sink": endpoint_json(&sink), "needs": facts.needs,
                "prefer": request.prefer, "load": request.load, "bytes": facts.len,
                "kernels": kernels, "fills": fills, "probed": untried.is_none(),
                "not_probed": untried.map(|unfit| unfit.reason),
                "profile": saved.status(), "verdicts": verdicts_json(&plan, &evidence_text), "impossible": plan.impossible,
                "turns": plan.turns, "schema": SCHEMA,
            }))?;
        } else {
            let details = Details { plan: &plan, size: facts.len, cite: &evidence_text, color };
            let mut text = match (facts.source.kind, facts.sink.kind) {
                (Kind::Memory, Kind::Memory) => {
                    paint::strong(&kernel_answer(&kernels, facts.len), color) + "\n"
                }
                _ => details.answer(),
            };
            text += &small_file_note(&facts, &request);
            text += &ends_text(&source, &sink, untried.as_ref());
            let _ = writeln!(text, "profile: {}", saved.describe());
            if self.verbose || plan.impossible.is_some() {
                text += &details.verdicts();
                text += &kernels_text("COPY KERNEL", &kernels, facts.len);
                text += &kernels_text("FILL", &fills, facts.len);
            } else {
                text += MORE;
            }
            print(&text)?;
        }
        Ok(if plan.impossible.is_some() { Exit::Unsupported } else { Exit::Done })
    }
}

/// Returns a note on files that fit one buffer: `copy` reads and writes them without a plan.
fn small_file_note(facts: &Facts, request: &Request) -> String {
    let info = LAST_RESORT.info();
    let buffer = info.knobs.first().map_or("", |knob| knob.name);
    let most = info.bytes(&Tuning::default(), buffer) as u64;
    let is_between_files = matches!((facts.source.kind, facts.sink.kind), (Kind::File, Kind::File));
    let is_excluded = request.without.iter().any(|name| name == info.name);
    let is_free = request.only.is_none() && request.asked_for.is_empty() && !is_excluded;
    if !is_between_files || !is_free || facts.len.is_some_and(|len| len > most) {
        return String::new();
    }
    let most = quantity::bytes(most);
    format!("`thalweg copy` copies files of up to {most} with one read and one write.\n")
}

/// Returns the copy kernels and the fill kernels for each range of sizes, if both endpoints are memory.
fn kernels(facts: &Facts, request: &Request, saved: &SavedProfile) -> [Vec<Band>; 2] {
    match (&saved.of_memory, facts.source.kind, facts.sink.kind) {
        (Some(profile), Kind::Memory, Kind::Memory) => [
            profile.kernel_bands(request.load, request.prefer),
            profile.fill_bands(request.load, request.prefer),
        ],
        _ => [Vec::new(), Vec::new()],
    }
}

/// Formats the answer for copies within memory, which need no system call.
fn kernel_answer(bands: &[Band], size: Option<u64>) -> String {
    match (size.and_then(|size| Band::of(bands, size)), bands) {
        (Some(band), _) => format!("copy kernel {}", band.kernel),
        (None, []) => "memcpy of libc (no kernel measured)".to_owned(),
        (None, bands) => {
            let each: Vec<String> =
                bands.iter().map(|b| format!("{} up to {}", b.kernel, Size(b.upto))).collect();
            format!("copy kernels {}", each.join(", "))
        }
    }
}

fn kernels_text(title: &str, bands: &[Band], size: Option<u64>) -> String {
    let mut rows = table(&[title, "UP TO", "MEASURED"]);
    let here = size.and_then(|size| Band::of(bands, size));
    for band in bands {
        let is_here = here.is_some_and(|here| here.upto == band.upto);
        let beyond = if band.extrapolated { ", larger sizes extrapolated" } else { "" };
        rows.add_row([
            format!("{}{}", band.kernel, if is_here { " (here)" } else { "" }),
            format!("{}{beyond}", Size(band.upto)),
            format!(
                "measured {}: {:.2}x libc [{:.2}, {:.2}] or less, {}",
                day(&band.at),
                band.ratio.ratio,
                band.ratio.lo,
                band.ratio.hi,
                quantity::count(u64::from(band.sessions), "session", "sessions"),
            ),
        ]);
    }
    if bands.is_empty() { String::new() } else { format!("\n{}", render(&rows)) }
}

/// Tries every mechanism between endpoints of these kinds, and records failures in `request.unfit`. Returns an error if
/// nothing could be tried.
fn try_all(source: &EndpointArg, sink: &EndpointArg, request: &mut Request) -> Result<(), Unfit> {
    let pair_of = |info: &'static thalweg_core::Info| info.pair(source.facts.kind, sink.facts.kind);
    let site = ScratchSite::between(source.folder.clone(), sink.folder.clone());
    let works = |site: &ScratchSite, pair: Pair| probe::pair(LAST_RESORT, pair, site);
    let Some(plain) = pair_of(LAST_RESORT.info()).copied() else { return Ok(()) };
    let site = match works(&site, plain) {
        Ok(()) => site,
        // If the test cannot create files in the source's directory, it uses the sink's directory on the same file
        // system.
        Err(_)
            if same_file_system(source, sink)
                && works(&ScratchSite::at(&sink.folder), plain).is_ok() =>
        {
            ScratchSite::at(&sink.folder)
        }
        Err(unfit) => return Err(unfit),
    };
    for mechanism in MECHANISMS.iter().filter(|m| m.info().role != Role::Harness) {
        let Some(pair) = pair_of(mechanism.info()) else { continue };
        if let Err(unfit) = probe::pair(*mechanism, *pair, &site) {
            request.unfit.insert(mechanism.info().name, unfit);
        }
    }
    Ok(())
}

fn same_file_system(source: &EndpointArg, sink: &EndpointArg) -> bool {
    match (&source.facts.fs, &sink.facts.fs) {
        (Some(a), Some(b)) => a.dev == b.dev,
        _ => false,
    }
}

/// Describes the endpoints.
fn ends_text(source: &EndpointArg, sink: &EndpointArg, untried: Option<&Unfit>) -> String {
    let mut text = format!("from {} to {}\n", source.describe(), sink.describe());
    if let Some(unfit) = untried {
        let _ = writeln!(text, "the methods were not tried: {unfit}");
    }
    text
}

/// The last line of a plan without `-v`.
const MORE: &str = "hint: -v shows the verdict on every method\n";

/// A plan to print.
struct Details<'d> {
    plan: &'d Plan,
    /// Bytes to move, if known.
    size: Option<u64>,
    /// Formats a measurement.
    cite: &'d dyn Fn(&Evidence) -> String,
    color: bool,
}

impl Details<'_> {
    /// Formats the answer in one line, then the reason.
    fn answer(&self) -> String {
        let plan = self.plan;
        let Some(verdict) = plan.chosen() else { return String::new() };
        let Judgement::Chosen { why } = &verdict.judgement else { return String::new() };
        let is_tie = |verdict: &&Verdict| matches!(verdict.judgement, Judgement::Tie);
        let ties = plan.verdicts.iter().filter(is_tie).count() as u64;
        let mut text = paint::strong(verdict.mechanism, self.color);
        match ties {
            0 if verdict.evidence.is_none() => text += " (not measured)",
            0 => {}
            ties => {
                let _ = write!(text, " (tied with {})", quantity::count(ties, "other", "others"));
            }
        }
        if let Some(ns) = plan.expected(verdict) {
            let _ = write!(text, ", about {}", expected(ns, self.size));
        }
        let _ = write!(text, "\nreason: {}", why.trim_start_matches("not measured: "));
        if let Some(evidence) = &verdict.evidence {
            let _ = write!(text, "; {}", self.evidence(evidence));
        }
        text.push('\n');
        if let Some(turns) = &plan.turns {
            let (first, others) = turns.among.split_first().unwrap_or((&"", &[]));
            let all = turns.among.join(", ");
            let _ = match turns.promise {
                Some(_) => writeln!(
                    text,
                    "If {first} turns out much slower than measured, thalweg also tries {} and \
                     continues with the fastest.",
                    others.join(", ")
                ),
                None => writeln!(
                    text,
                    "thalweg tries {all} on the first blocks and continues with the fastest."
                ),
            };
        }
        text
    }

    /// Formats a measurement, unless its interval is too wide to be informative.
    fn evidence(&self, evidence: &Evidence) -> String {
        if says_nothing(&evidence.wall) { NOT_ENOUGH.to_owned() } else { (self.cite)(evidence) }
    }

    /// Formats a row for every mechanism.
    fn verdicts(&self) -> String {
        let mut text = String::new();
        if let Some(reason) = &self.plan.impossible {
            let _ = writeln!(text, "impossible: {reason}");
        }
        let mut rows = table(&["METHOD", "VERDICT", "EXPECTED", "MEASURED"]);
        for verdict in &self.plan.verdicts {
            rows.add_row([
                verdict.mechanism.to_owned(),
                verdict_text(verdict),
                self.plan.expected(verdict).map_or("-".to_owned(), |ns| expected(ns, self.size)),
                verdict.evidence.as_ref().map_or("-".to_owned(), |one| self.evidence(one)),
            ]);
        }
        let chosen = self.plan.chosen().map(|verdict| verdict.mechanism);
        text.push('\n');
        for line in render(&rows).lines() {
            let name = line.split_whitespace().next();
            let is_chosen = name.is_some() && name == chosen && !line.starts_with(' ');
            text.push_str(&paint::strong(line, self.color && is_chosen));
            text.push('\n');
        }
        text
    }
}

/// Returns text such as `chosen (buffer=512K): fastest measured`.
fn verdict_text(verdict: &Verdict) -> String {
    let tuning = verdict.tuning.to_string();
    let tuned = if tuning.is_empty() { tuning } else { format!(" ({tuning})") };
    match &verdict.judgement {
        Judgement::Chosen { why } => format!("chosen{tuned}: {why}"),
        Judgement::Tie => format!("tied with the chosen method{tuned}"),
        // With `--prefer cpu` or `memory` the ratio may be less than 1.
        Judgement::Slower { by } => format!("{by:.2}x the chosen method's time{tuned}"),
        Judgement::Unmeasured => "possible, not measured".to_owned(),
        Judgement::Unfit { reason } => format!("no: {reason}"),
    }
}

fn expected(ns_per_byte: f64, size: Option<u64>) -> String {
    match size {
        Some(size) => quantity::duration(time_for(ns_per_byte, size)),
        None => format!("{}/s", quantity::bytes((1e9 / ns_per_byte) as u64)),
    }
}

fn time_for(ns_per_byte: f64, size: u64) -> Duration {
    let seconds = ns_per_byte * size as f64 / 1e9;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn evidence_text(evidence: &Evidence) -> String {
    let over = match evidence.sink_state {
        SinkState::Fresh => "",
        SinkState::Resident => ", over an existing file",
    };
    evidence.cited(LAST_RESORT.info().name) + over
}

/// Returns the verdicts as JSON, with the evidence also as text.
fn verdicts_json(plan: &Plan, cite: &dyn Fn(&Evidence) -> String) -> Vec<Value> {
    let with_words = |verdict: &Verdict| {
        let mut value = json!(verdict);
        value["cited"] = json!(verdict.evidence.as_ref().map(cite));
        value
    };
    plan.verdicts.iter().map(with_words).collect()
}

fn endpoint_json(place: &EndpointArg) -> Value {
    let fs = place.facts.fs.as_ref();
    json!({
        "name": place.name, "kind": place.facts.kind, "bytes": place.size,
        "file_system": fs.map(|fs| fs.name.as_str()), "options": fs.map(thalweg_sys::host::FileSystem::options),
        "remote": fs.is_some_and(|fs| fs.remote), "unchanging": place.facts.unchanging,
        "assumed": place.assumed,
    })
}
