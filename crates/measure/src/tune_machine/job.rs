//! The messages of a session: one line of JSON as input, one line for each size as output.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_core::{
    Tuning,
    profile::{Cell, LARGE_READS, Load, SinkState},
};

use super::pair::EndPair;
use crate::{busy::BusyProcessors, log::SampleLog};

/// The job of one session: all mechanisms on one pair, size by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestJob {
    pub ends: EndPair,
    /// The background load. Information only: the session does not create it.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
    /// Bytes per transfer, ascending.
    pub sizes: Vec<u64>,
    pub ways: WantedMethods,
    /// Maximum number of rounds for each size.
    pub rounds: usize,
    /// Wall time for everything.
    pub budget: Duration,
    pub seed: u64,
    /// For kernels: `true` if all copies or fills have exactly the given size. Otherwise all short operations and half
    /// of the long operations have a random smaller size.
    #[serde(default)]
    pub exact: bool,
}

/// The mechanisms that take part in a session in addition to the reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WantedMethods {
    /// Every mechanism at its default, and with each value of each of its knobs.
    All,
    /// These mechanisms and tunings, and every mechanism at its default.
    These(Vec<TunedMethod>),
    Only(Vec<TunedMethod>),
}

/// A mechanism or a kernel, with its tuning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TunedMethod {
    pub name: String,
    #[serde(default)]
    pub tuning: Tuning,
}

impl TunedMethod {
    pub fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), tuning: Tuning::default() }
    }
}

impl std::fmt::Display for TunedMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = if self.tuning.is_default() { "" } else { " " };
        write!(f, "{}{space}{}", self.name, self.tuning)
    }
}

/// A line of a session's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SurveyLine {
    /// The ends as named in a profile.
    Ends(EndKeys),
    Size(SizeLog),
    /// A size was skipped.
    Skipped {
        size: u64,
        reason: String,
    },
    /// A mechanism could not take part, or delivered wrong bytes.
    Unfit {
        way: TunedMethod,
        reason: String,
    },
    Done,
    /// The session ended early, for this reason.
    Failed(String),
}

/// The names of both ends in a profile, with mount options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndKeys {
    pub source: String,
    pub sink: String,
    /// Mount options of source and sink.
    pub options: [String; 2],
}

impl EndKeys {
    /// Returns the ends of a cell.
    pub fn of(cell: &Cell) -> Self {
        let (source, sink) = (cell.source.clone(), cell.sink.clone());
        Self { source, sink, options: cell.options.clone() }
    }

    /// Returns the name of the sink without the suffix for the kind of its reader.
    pub fn sink(&self) -> &str {
        self.sink.strip_suffix(LARGE_READS).unwrap_or(&self.sink)
    }

    /// Returns these ends without the suffix for the kind of the reader.
    #[must_use]
    pub fn plain(mut self) -> Self {
        let len = self.sink().len();
        self.sink.truncate(len);
        self
    }
}

/// The samples of one size. Each mechanism has the index of its arm (a compared variant) in the log. The first
/// mechanism is the reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SizeLog {
    pub size: u64,
    /// Transfers in each sample of the reference; faster mechanisms may have more.
    pub transfers: u64,
    pub ways: Vec<TunedMethod>,
    /// Private memory that each mechanism used at the end of a transfer, if it was measured.
    pub memory: Vec<Option<u64>>,
    pub log: SampleLog,
}

impl SizeLog {
    /// Returns the index of a mechanism in the log.
    pub fn arm(&self, way: &TunedMethod) -> Option<usize> {
        self.ways.iter().position(|known| known == way)
    }
}

/// All output of one session.
#[derive(Clone, Debug, Default)]
pub struct ContestLog {
    /// The ends, if the session could create them.
    pub ends: Option<EndKeys>,
    /// The sizes that were measured.
    pub sizes: Vec<SizeLog>,
    /// The sizes that were skipped, with the reason.
    pub skipped: BTreeMap<u64, String>,
    /// The mechanisms that could not take part, with the reason.
    pub unfit: BTreeMap<TunedMethod, String>,
    /// The reason why the session ended early.
    pub failed: Option<String>,
    /// `true` if the session finished.
    pub done: bool,
    /// How busy the machine was with other processes before or after the session, whichever was more; `None` if it
    /// was not measured.
    pub around: Option<BusyProcessors>,
}

impl ContestLog {
    pub fn take(&mut self, line: SurveyLine) {
        match line {
            SurveyLine::Ends(ends) => self.ends = Some(ends),
            SurveyLine::Size(size) => self.sizes.push(size),
            SurveyLine::Skipped { size, reason } => {
                self.skipped.insert(size, reason);
            }
            SurveyLine::Unfit { way, reason } => {
                self.unfit.insert(way, reason);
            }
            SurveyLine::Done => self.done = true,
            SurveyLine::Failed(reason) => self.failed = Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_its_line() {
        let job = ContestJob {
            ends: "file:file@/a,/b".parse().unwrap(),
            load: Load::Loaded,
            sink_state: SinkState::Resident,
            sizes: vec![4096, 1 << 30],
            ways: WantedMethods::These(vec![TunedMethod {
                name: "splice".into(),
                tuning: Tuning::of("pipe", 4096),
            }]),
            rounds: 5,
            budget: Duration::from_millis(1500),
            seed: u64::MAX,
            exact: true,
        };
        let line = serde_json::to_string(&job).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<ContestJob>(&line).unwrap(), job);
    }
}
