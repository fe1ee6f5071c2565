//! The account of one transfer.

use serde::Serialize;
use std::time::Duration;

use super::contest::Look;
use crate::{Error, Tuning};

/// How a transfer ended.
#[derive(Debug)]
pub struct Outcome {
    /// What happened up to the end, whatever the end was.
    pub report: Report,
    /// The watcher asked to stop.
    pub stopped: bool,
    /// Why it failed; `moved` is the true prefix in the sink.
    pub error: Option<Error>,
}

impl Outcome {
    /// The report if everything was moved, or the error. Being stopped is not an error here.
    pub fn into_result(self) -> Result<Report, Error> {
        self.error.map_or(Ok(self.report), Err)
    }
}

/// What was moved, by what, at what cost.
#[derive(Debug, Default)]
pub struct Report {
    /// Bytes of the source, from its start, that are in the sink.
    pub bytes: u64,
    /// Bytes taken from a source that cannot be rewound and that did not reach the sink.
    pub lost: u64,
    /// Which mechanism moved how much, in order of last use.
    pub shares: Vec<Share>,
    /// Every change of mechanism under way.
    pub steps_down: Vec<StepDown>,
    /// What was found where mechanisms took turns.
    pub looks: Vec<Look>,
    /// What the mechanisms have to say about the bytes they moved.
    pub notes: Vec<String>,
    /// Time on the clock.
    pub wall: Duration,
    /// Processor time of the whole process, user and system.
    pub cpu: Duration,
}

/// The part one mechanism moved.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The mechanism's name.
    pub mechanism: &'static str,
    /// Its tuning.
    pub tuning: Tuning,
    /// Bytes it delivered.
    pub bytes: u64,
}

/// One change of mechanism, and why.
#[derive(Clone, Debug, Serialize)]
pub struct StepDown {
    /// What could not go on.
    pub from: &'static str,
    /// What went on instead.
    pub to: &'static str,
    /// Bytes in the sink at that moment.
    pub at: u64,
    /// The call that was refused.
    pub call: &'static str,
    /// The errno's symbol; empty if there was none.
    pub errno: &'static str,
    /// The same in words.
    pub reason: String,
}

impl Report {
    /// The mechanism that moved most, and its tuning.
    pub fn main(&self) -> Option<&Share> {
        self.shares.iter().max_by_key(|share| share.bytes)
    }

    pub(super) fn use_mechanism(&mut self, mechanism: &'static str, tuning: &Tuning) {
        let is_same = |share: &Share| share.mechanism == mechanism && share.tuning == *tuning;
        let share = match self.shares.iter().position(is_same) {
            Some(n) => self.shares.remove(n),
            None => Share { mechanism, tuning: tuning.clone(), bytes: 0 },
        };
        self.shares.push(share);
    }

    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(share) = self.shares.last_mut() {
            share.bytes += bytes;
        }
    }
}
