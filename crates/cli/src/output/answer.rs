//! The JSON object that a command prints at its end, if the command moves data.

use serde::Serialize;
use serde_json::Value;
use thalweg_core::{
    Judgement, Plan, Report, StepDown, Tuning, driver::ContestResult, profile::Evidence,
};
use thalweg_tree::fleet::WorkerRecord;

use super::quantity;

/// Version of this object's schema.
pub const SCHEMA: u32 = 1;

/// The result of a command: work done, mechanisms, cost.
#[derive(Debug, Default, Serialize)]
pub struct JsonAnswer {
    /// Bytes that reached the destination.
    pub bytes: u64,
    /// Number of files; 1 for a stream.
    pub files: u64,
    /// Wall time.
    pub seconds: f64,
    /// CPU time, user and system.
    pub cpu_seconds: f64,
    /// The mechanism that moved the most bytes.
    pub mechanism: Option<String>,
    pub tuning: Tuning,
    /// The evidence for the choice, if the command chose a mechanism between processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceEvidence>,
    /// Every change of mechanism during the transfer.
    pub steps_down: Vec<FallbackStep>,
    /// Results of comparing mechanisms on the first bytes.
    pub looks: Vec<ContestResult>,
    /// Extended attributes that the destination refused.
    pub attributes_dropped: u64,
    /// Bytes of the copied files that an earlier run had moved.
    pub resumed: u64,
    /// Results of the verification.
    pub verified: VerifiedCounts,
    /// Results of a tree fetch, in addition to the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeAnswer>,
    /// Results of a sync, in addition to the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncAnswer>,
    /// The rank of this worker in a sharded copy, and the results of all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetAnswer>,
    pub tune: Option<TunedAnswer>,
    /// Mechanisms that could not be used, with reasons.
    pub unavailable: Vec<UnavailableMethod>,
    /// Files that keep their temporary name, so that a later copy can resume.
    pub unfinished: Vec<String>,
    /// Existing files and devices that were written in part.
    pub torn: Vec<String>,
    /// The error; null on success.
    pub error: Option<String>,
    pub schema: u32,
}

/// Counts of copies that were compared with their sources.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct VerifiedCounts {
    /// `true` if verification was requested; otherwise the counts are meaningless.
    pub asked: bool,
    /// Files that are equal.
    pub same: u64,
    /// Files that differ and were not copied again.
    pub differ: u64,
    /// Files that differed and were copied again.
    pub again: u64,
    /// Files that were not read: pipes and devices, or every file of a dry run.
    pub not_read: u64,
    /// Bytes of the equal files.
    pub bytes: u64,
    /// Equal files that should have been read from the device and came from the page cache.
    pub from_memory: u64,
    /// The hash function of the comparison.
    pub hash: Option<&'static str>,
}

/// Results of fetching a directory from a server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TreeAnswer {
    /// Symbolic links that were created.
    pub links: u64,
    /// FIFOs, sockets and devices that were created.
    pub specials: u64,
    /// Files that already had the properties that the server lists.
    pub unchanged: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Entries that the server has but leaves out of its list.
    pub left_out: u64,
}

/// Results of a sync: numbers of entries.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SyncAnswer {
    pub created: u64,
    /// New entries that are links to files of `--reference`; part of `created`.
    pub linked: u64,
    pub changed: u64,
    pub deleted: u64,
    pub unchanged: u64,
    pub failed: u64,
    /// The reason why nothing was deleted.
    pub refused: Option<String>,
}

/// A worker of a sharded copy.
#[derive(Clone, Debug, Serialize)]
pub struct FleetAnswer {
    pub rank: u32,
    pub size: u32,
    /// Tasks in the plan.
    pub tasks: u64,
    /// Tasks that this worker completed.
    pub done: u64,
    /// The outcome for this worker: `finished`, `others` (another worker finishes), `there` (the copy existed at the
    /// start) or `unfinished`.
    pub end: &'static str,
    /// Results of all workers, if this worker finished the copy.
    pub workers: Vec<WorkerRecord>,
}

/// The evidence for a choice.
#[derive(Clone, Debug, Serialize)]
pub struct ChoiceEvidence {
    /// The reason in words: the measurement, or why it does not count.
    pub why: String,
    /// The measurement of the chosen mechanism on this machine.
    pub evidence: Option<Evidence>,
    /// The profile, with the reason if it is not used.
    pub profile: Value,
}

/// A change of mechanism.
#[derive(Debug, Serialize)]
pub struct FallbackStep {
    /// The mechanism that could not continue.
    pub from: String,
    /// The mechanism that continued.
    pub to: String,
    /// Offset at which the mechanism changed, in bytes.
    pub at: u64,
    /// Symbol of the errno, such as `EXDEV`.
    pub errno: String,
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct TunedAnswer {
    /// Variants: one per mechanism, and one for `cp`.
    pub arms: Vec<TunedArmAnswer>,
}

#[derive(Debug, Serialize)]
pub struct TunedArmAnswer {
    pub name: String,
    /// The time of the variant divided by that of `cp`; null if `cp` could not be measured.
    pub ratio_to_cp: Option<f64>,
    /// Half the width of the interval, as a fraction of the ratio.
    pub spread: Option<f64>,
}

/// A mechanism that could not be used.
#[derive(Debug, Serialize)]
pub struct UnavailableMethod {
    pub name: String,
    pub reason: String,
}

impl JsonAnswer {
    /// Creates the answer for one transfer.
    pub fn of(report: &Report) -> Self {
        let main = report.main();
        Self {
            bytes: report.bytes,
            files: 1,
            seconds: report.wall.as_secs_f64(),
            cpu_seconds: report.cpu.as_secs_f64(),
            mechanism: main.map(|share| share.mechanism.to_owned()),
            tuning: main.map(|share| share.tuning.clone()).unwrap_or_default(),
            steps_down: report.steps_down.iter().map(FallbackStep::from).collect(),
            looks: report.looks.clone(),
            schema: SCHEMA,
            ..Self::default()
        }
    }

    /// Creates the answer of a command that failed before it moved anything.
    pub fn failed(error: String) -> Self {
        Self { error: Some(error), schema: SCHEMA, ..Self::default() }
    }

    /// Returns the answer as one line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns text such as `relative time on the first 6.0 MiB: copy-file-range 0.86, splice 0.91, read-write 1.00;
/// continued with copy-file-range`.
pub fn describe_look(look: &ContestResult) -> String {
    let tried = look.tried.iter().map(|tried| match tried.ratio {
        Some(ratio) => format!("{} {ratio:.2}", tried.mechanism),
        None => format!("{} -", tried.mechanism),
    });
    let tried: Vec<String> = tried.collect();
    let read = if look.from_disk { ", read from the disk" } else { "" };
    let upto = quantity::bytes(look.at);
    format!(
        "relative time on the first {upto}{read}: {}; continued with {}",
        tried.join(", "),
        look.chosen
    )
}

impl From<&StepDown> for FallbackStep {
    fn from(step: &StepDown) -> Self {
        Self {
            from: step.from.to_owned(),
            to: step.to.to_owned(),
            at: step.at,
            errno: step.errno.to_owned(),
            reason: format!("{}: {}", step.call, step.reason),
        }
    }
}

/// Returns the mechanisms that the plan considers unfit.
pub fn unavailable(plan: &Plan) -> Vec<UnavailableMethod> {
    let unfit = plan.verdicts.iter().filter_map(|verdict| match &verdict.judgement {
        Judgement::Unfit { reason } => {
            Some(UnavailableMethod { name: verdict.mechanism.to_owned(), reason: reason.clone() })
        }
        _ => None,
    });
    unfit.collect()
}
