//! What a session is told and what it answers: one line of JSON in, one line for each size out.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_core::{
    Tuning,
    profile::{Cell, LARGE_READS, Load, SinkState},
};

use super::pair::Ends;
use crate::measure::{busy::Busy, log::Log};

/// One session: all ways on one pair, size by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestJob {
    pub ends: Ends,
    /// What else the machine does meanwhile. The session is told, and does not see to it itself.
    pub load: Load,
    /// What the sink is like before each transfer.
    pub sink_state: SinkState,
    /// Bytes per transfer, rising.
    pub sizes: Vec<u64>,
    pub ways: Ways,
    /// Most rounds for each size.
    pub rounds: usize,
    /// Time on the clock for everything.
    pub budget: Duration,
    pub seed: u64,
    /// By kernels: whether all copies, or fills, have exactly the size. Else all short ones and half of
    /// the long ones have fewer bytes, drawn.
    #[serde(default)]
    pub exact: bool,
}

/// The ways that take part in a session, besides the reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ways {
    /// Every mechanism at its default, and with each knob turned to each value.
    All,
    /// These; every mechanism at its default besides.
    These(Vec<Way>),
    Only(Vec<Way>),
}

/// A mechanism, or a kernel, and its tuning.
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

/// A line of a session's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The ends as a profile keeps them.
    Ends(EndKeys),
    Size(SizeLog),
    /// A size is left out.
    Skipped {
        size: u64,
        reason: String,
    },
    /// A way cannot take part, or took part and delivered other bytes.
    Unfit {
        way: Way,
        reason: String,
    },
    Done,
    /// It ended early, and why.
    Failed(String),
}

/// How a profile names the two ends: key and mount options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndKeys {
    pub source: String,
    pub sink: String,
    /// Mount options of both.
    pub options: [String; 2],
}

impl EndKeys {
    /// The ends that a cell is about.
    pub fn of(cell: &Cell) -> Self {
        let (source, sink) = (cell.source.clone(), cell.sink.clone());
        Self { source, sink, options: cell.options.clone() }
    }

    /// The sink, whatever reads at its other end.
    pub fn sink(&self) -> &str {
        self.sink.strip_suffix(LARGE_READS).unwrap_or(&self.sink)
    }

    /// The same ends, whatever reads there.
    #[must_use]
    pub fn plain(mut self) -> Self {
        let len = self.sink().len();
        self.sink.truncate(len);
        self
    }
}

/// The samples of one size. The ways have the numbers of the log's arms; the first is the reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SizeLog {
    pub size: u64,
    /// Transfers in each sample of the reference; faster ways may have more.
    pub transfers: u64,
    pub ways: Vec<Way>,
    /// Private memory that each held at the end of a transfer, where that was looked at.
    pub memory: Vec<Option<u64>>,
    pub log: Log,
}

impl SizeLog {
    /// The number that a way has in the log.
    pub fn arm(&self, way: &Way) -> Option<usize> {
        self.ways.iter().position(|known| known == way)
    }
}

/// All that one session answered.
#[derive(Clone, Debug, Default)]
pub struct ContestLog {
    /// The ends, if it got as far as making them.
    pub ends: Option<EndKeys>,
    /// The sizes that were done.
    pub sizes: Vec<SizeLog>,
    /// The sizes that were not, and why.
    pub skipped: BTreeMap<u64, String>,
    /// The ways that could not take part, and why.
    pub unfit: BTreeMap<Way, String>,
    /// Why it ended early.
    pub failed: Option<String>,
    /// Whether it came to its end.
    pub done: bool,
    /// How busy the machine was with other work before it or after it, whichever was more; `None` where
    /// nobody looked.
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
