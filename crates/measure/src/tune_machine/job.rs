//! The messages of a session: one line of JSON as input, one line for each size as output.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_core::{
    Tuning,
    profile::{Cell, LARGE_READS, Load, SinkState},
};

use super::pair::Ends;
use crate::{busy::Busy, log::Log};

/// The job of one session: all mechanisms on one pair, size by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestJob {
    pub ends: Ends,
    /// The background load. Information only: the session does not create it.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
    /// Bytes per transfer, ascending.
    pub sizes: Vec<u64>,
    pub ways: Ways,
    /// Maximum number of rounds for each size.
    pub rounds: usize,
    /// Wall time for everything.
    pub budget: Duration,
    pub seed: u64,
    /// For kernels: `true` if all copies or fills have exactly the given size. Otherwise all short ones and half of
    /// the long ones have a random smaller size.
    #[serde(default)]
    pub exact: bool,
}

/// The mechanisms that take part in a session in addition to the reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ways {
    /// Every mechanism at its default, and with each value of each knob.
    All,
    /// These, and every mechanism at its default.
    These(Vec<Way>),
    Only(Vec<Way>),
}

/// A mechanism or a kernel, with its tuning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Way {
    pub name: String,
    #[serde(default)]
    pub tuning: Tuning,
}

impl Way {
    pub fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), tuning: Tuning::default() }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = if self.tuning.is_default() { "" } else { " " };
        write!(f, "{}{space}{}", self.name, self.tuning)
    }
}

/// One line of a session's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
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
        way: Way,
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

    /// Returns the name of the sink without the kind of its reader.
    pub fn sink(&self) -> &str {
        self.sink.strip_suffix(LARGE_READS).unwrap_or(&self.sink)
    }

    /// Returns these ends without the kind of the reader.
    #[must_use]
    pub fn plain(mut self) -> Self {
        let len = self.sink().len();
        self.sink.truncate(len);
        self
    }
}

/// The samples of one size. The index of a mechanism is that of its arm in the log; the first one is the reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SizeLog {
    pub size: u64,
    /// Transfers in each sample of the reference; faster mechanisms may have more.
    pub transfers: u64,
    pub ways: Vec<Way>,
    /// Private memory that each mechanism used at the end of a transfer, if it was measured.
    pub memory: Vec<Option<u64>>,
    pub log: Log,
}

impl SizeLog {
    /// Returns the index of a mechanism in the log.
    pub fn arm(&self, way: &Way) -> Option<usize> {
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
    pub unfit: BTreeMap<Way, String>,
    /// The reason why the session ended early.
    pub failed: Option<String>,
    /// `true` if the session finished.
    pub done: bool,
    /// How busy the machine was with other processes before or after the session, whichever was more; `None` if it
    /// was not measured.
    pub around: Option<Busy>,
}

impl ContestLog {
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Ends(ends) => self.ends = Some(ends),
            Line::Size(size) => self.sizes.push(size),
            Line::Skipped { size, reason } => {
                self.skipped.insert(size, reason);
            }
            Line::Unfit { way, reason } => {
                self.unfit.insert(way, reason);
            }
            Line::Done => self.done = true,
            Line::Failed(reason) => self.failed = Some(reason),
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
            ways: Ways::These(vec![Way {
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
