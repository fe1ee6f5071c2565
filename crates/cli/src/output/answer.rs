//! The one JSON object that `copy` and `pipe` print last.

use serde::Serialize;
use serde_json::Value;
use thalweg_core::{Judgement, Plan, Report, StepDown, Tuning, driver::Look, profile::Evidence};
use thalweg_tree::fleet::WorkerRecord;

use super::quantity;

/// The version of this object.
pub const SCHEMA: u32 = 1;

/// What was done, by what, at what cost.
#[derive(Debug, Default, Serialize)]
pub struct Answer {
    /// Bytes that reached the destination.
    pub bytes: u64,
    /// Files among them; 1 for a stream.
    pub files: u64,
    /// Time on the clock.
    pub seconds: f64,
    /// Processor time, user and system.
    pub cpu_seconds: f64,
    /// The mechanism that moved most.
    pub mechanism: Option<String>,
    pub tuning: Tuning,
    /// What its choice rests on, where the command chose between processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// Every change of mechanism under way.
    pub steps_down: Vec<Step>,
    /// What was found where mechanisms took turns on the first bytes.
    pub looks: Vec<Look>,
    /// Extended attributes that the destination refused.
    pub attributes_dropped: u64,
    /// What was compared with its source.
    pub verified: Verified,
    /// What became of a folder, beside the files that came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
    /// Which of many workers this was, and what they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Fleet>,
    pub tune: Option<Tuned>,
    /// Mechanisms that could not be used, and why.
    pub unavailable: Vec<Unavailable>,
    /// What keeps its temporary name, for a later copy to go on with.
    pub unfinished: Vec<String>,
    /// Files and devices that were there before, and hold a part of what they were to get.
    pub torn: Vec<String>,
    /// What went wrong; null if nothing did.
    pub error: Option<String>,
    pub schema: u32,
}

/// How many copies were compared with their sources, and what that showed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Verified {
    /// Whether anything was to be compared; if not, the counts say nothing.
    pub asked: bool,
    /// Files that are equal.
    pub same: u64,
    /// Files that differ, and stay so.
    pub differ: u64,
    /// Files that differed and were copied again.
    pub again: u64,
    /// Files that were not read: pipes, devices, a dry run.
    pub not_read: u64,
    /// Bytes of the equal files.
    pub bytes: u64,
    /// Equal files that were to be read from the device and came from memory.
    pub from_memory: u64,
    /// The hash they were compared by.
    pub hash: Option<&'static str>,
}

/// What became of a folder of a server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tree {
    /// Links that were made.
    pub links: u64,
    /// Files that were there already as the server lists them.
    pub unchanged: u64,
    /// Entries that are not there.
    pub failed: u64,
    /// Entries that the server has and does not list.
    pub left_out: u64,
}

/// One worker of a copy that many work on.
#[derive(Clone, Debug, Serialize)]
pub struct Fleet {
    pub rank: u32,
    pub size: u32,
    /// Tasks in the plan.
    pub tasks: u64,
    /// Tasks that this one did.
    pub done: u64,
    /// `finished`, `others`, `there` or `unfinished`.
    pub end: &'static str,
    /// All workers, if this one finished.
    pub workers: Vec<WorkerRecord>,
}

/// What a choice rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// In words: what was measured, or why that does not count.
    pub why: String,
    /// What was measured of the way here.
    pub evidence: Option<Evidence>,
    /// The profile, and why it is not used if it is not.
    pub profile: Value,
}

/// A change of mechanism.
#[derive(Debug, Serialize)]
pub struct Step {
    /// What could not go on.
    pub from: String,
    /// What went on instead.
    pub to: String,
    /// At which byte.
    pub at: u64,
    /// The errno's symbol.
    pub errno: String,
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct Tuned {
    /// One per mechanism, and `cp`.
    pub arms: Vec<Arm>,
}

#[derive(Debug, Serialize)]
pub struct Arm {
    pub name: String,
    /// Its time divided by `cp`'s; null if `cp` could not be measured.
    pub ratio_to_cp: Option<f64>,
    /// Half the width of the interval, as a fraction of the ratio.
    pub spread: Option<f64>,
}

/// A mechanism that could not be used.
#[derive(Debug, Serialize)]
pub struct Unavailable {
    pub name: String,
    pub reason: String,
}

impl Answer {
    /// The account of one transfer.
    pub fn of(report: &Report) -> Self {
        let main = report.main();
        Self {
            bytes: report.bytes,
            files: 1,
            seconds: report.wall.as_secs_f64(),
            cpu_seconds: report.cpu.as_secs_f64(),
            mechanism: main.map(|share| share.mechanism.to_owned()),
            tuning: main.map(|share| share.tuning.clone()).unwrap_or_default(),
            steps_down: report.steps_down.iter().map(Step::from).collect(),
            looks: report.looks.clone(),
            schema: SCHEMA,
            ..Self::default()
        }
    }

    /// One line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// `tried on its first 6 MiB: copy-file-range 0.86, splice 0.91, read-write 1.00; copy-file-range goes on`.
pub fn look_in_words(look: &Look) -> String {
    let tried = look.tried.iter().map(|tried| match tried.ratio {
        Some(ratio) => format!("{} {ratio:.2}", tried.mechanism),
        None => format!("{} -", tried.mechanism),
    });
    let tried: Vec<String> = tried.collect();
    let read = if look.from_disk { ", read from the disk" } else { "" };
    let upto = quantity::bytes(look.at);
    format!("tried up to {upto}{read}: {}; {} went on", tried.join(", "), look.chosen)
}

impl From<&StepDown> for Step {
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

/// The mechanisms a plan finds unfit.
pub fn unavailable(plan: &Plan) -> Vec<Unavailable> {
    let unfit = plan.verdicts.iter().filter_map(|verdict| match &verdict.judgement {
        Judgement::Unfit { reason } => {
            Some(Unavailable { name: verdict.mechanism.to_owned(), reason: reason.clone() })
        }
        _ => None,
    });
    unfit.collect()
}
