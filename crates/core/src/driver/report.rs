//! The report of one transfer.

use serde::Serialize;
use std::time::Duration;

use super::contest::ContestResult;
use crate::{Error, Tuning};

/// The result of a transfer.
#[derive(Debug)]
pub struct Outcome {
    /// The report up to the end of the transfer, even if the transfer failed.
    pub report: Report,
    /// `true` if the watcher asked to stop.
    pub stopped: bool,
    /// The error, if the transfer failed. Its `moved` is the number of bytes from the start of the
    /// source that reached the sink.
    pub error: Option<Error>,
}

impl Outcome {
    /// Returns the report if the transfer succeeded or was stopped, or the error if it failed.
    pub fn into_result(self) -> Result<Report, Error> {
        self.error.map_or(Ok(self.report), Err)
    }
}

/// The bytes moved, the mechanisms used and the cost.
#[derive(Debug, Default)]
pub struct Report {
    /// Bytes of the source, from its start, that are in the sink.
    pub bytes: u64,
    /// Bytes that were read and did not reach the sink, if the source cannot be rewound to read
    /// them again.
    pub lost: u64,
    /// The bytes that each mechanism moved. The mechanism used last is the last one.
    pub shares: Vec<Share>,
    /// Every fallback to another mechanism during the transfer.
    pub steps_down: Vec<StepDown>,
    /// The results of comparisons between mechanisms.
    pub looks: Vec<ContestResult>,
    /// Notes of the mechanisms about the bytes they moved.
    pub notes: Vec<String>,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the whole process, user and system.
    pub cpu: Duration,
}

/// The bytes moved by one mechanism.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The mechanism's name.
    pub mechanism: &'static str,
    /// The tuning with which the mechanism ran.
    pub tuning: Tuning,
    /// Bytes it delivered.
    pub bytes: u64,
}

/// A fallback to another mechanism, and its reason.
#[derive(Clone, Debug, Serialize)]
pub struct StepDown {
    /// The mechanism that could not continue.
    pub from: &'static str,
    /// The mechanism that continued.
    pub to: &'static str,
    /// Bytes in the sink at that moment.
    pub at: u64,
    /// The system call that was refused.
    pub call: &'static str,
    /// The errno's symbol; empty if there was none.
    pub errno: &'static str,
    /// The reason in words.
    pub reason: String,
}

impl Report {
    /// Returns the mechanism that moved most bytes, with its tuning.
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
