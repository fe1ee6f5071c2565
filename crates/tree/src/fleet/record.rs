//! The identity of a worker, and its report.

use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString},
    fmt,
    time::SystemTime,
};

use crate::TreeReport;

/// Maximum size of a report that is read.
pub(crate) const MOST: usize = 64 << 10;
/// Maximum length of a host name; longer names are truncated.
const LONGEST_HOST: usize = 64;

/// The unique name of a worker, as used in its file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerName {
    pub host: String,
    pub pid: u32,
    pub rank: u32,
    // Start time, or the number that the caller chose. It is needed because process IDs are reused, and because they
    // always start at the lowest numbers in a container. The start time is never compared with a clock.
    began: u64,
}

/// The bytes that one mechanism moved for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedBytes {
    /// The name of the mechanism.
    pub mechanism: String,
    /// Number of bytes.
    pub bytes: u64,
}

/// The record of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The host name of its machine.
    pub host: String,
    /// Its process ID.
    pub pid: u32,
    /// Its rank in the fleet.
    pub rank: u32,
    /// Number of tasks that it recorded.
    pub tasks: u64,
    /// Bytes that it moved for these tasks.
    pub bytes: u64,
    /// Seconds from its start to the end of the last recorded task, by the worker's clock.
    pub seconds: f64,
    /// Bytes moved by each mechanism; empty if the worker left no report.
    pub mechanisms: Vec<MovedBytes>,
    /// Seconds since the journal last grew, by its modification time and the clock of the observer.
    pub silent: f64,
    /// `true` if the worker ended normally. Otherwise it was killed or is still running.
    pub ended: bool,
}

impl WorkerName {
    /// Returns the name of this process as a worker of this rank. `began`: a number in place of the start time.
    pub fn of_this(rank: u32, began: Option<u64>) -> Self {
        let uname = rustix::system::uname();
        let plain = |byte: &u8| {
            let is_plain = byte.is_ascii_alphanumeric() || b"-.".contains(byte);
            char::from(if is_plain { *byte } else { b'-' })
        };
        let name = uname.nodename().to_bytes();
        let host: String = name.iter().take(LONGEST_HOST).map(plain).collect();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = began.unwrap_or_else(|| since.map_or(0, |since| since.as_nanos() as u64));
        Self { host, pid: std::process::id(), rank, began }
    }

    /// Returns the name of a file of this worker. `what`: the kind of the file.
    pub fn file(&self, what: &str) -> CString {
        CString::new(format!("{what}.{self}")).unwrap_or_default()
    }

    /// Parses the name of a worker's file.
    pub fn parse(file: &CStr, what: &str) -> Option<Self> {
        let name = file.to_str().ok()?.strip_prefix(what)?.strip_prefix('.')?;
        let mut parts = name.rsplitn(4, '-');
        let began = u64::from_str_radix(parts.next()?, 16).ok()?;
        let rank = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let host = parts.next()?.to_owned();
        let name = Self { host, pid, rank, began };
        // Only the canonical spelling is accepted.
        (name.host.len() <= LONGEST_HOST && name.file(what).as_c_str() == file).then_some(name)
    }
}

/// Formats the name as `HOST-PID-RANK-BEGAN`.
impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{:x}", self.host, self.pid, self.rank, self.began)
    }
}

impl WorkerRecord {
    /// Creates the report of a worker that ends.
    pub(crate) fn of(name: &WorkerName, tasks: u64, seconds: f64, report: &TreeReport) -> Self {
        let mechanisms = report.shares.iter();
        let mechanisms = mechanisms
            .map(|share| MovedBytes { mechanism: share.mechanism.to_owned(), bytes: share.bytes });
        Self {
            mechanisms: mechanisms.collect(),
            ended: true,
            tasks,
            bytes: report.bytes,
            seconds,
            ..Self::unknown(name)
        }
    }

    /// Adds the report of a later run of this worker.
    pub(crate) fn and(mut self, later: Self) -> Self {
        for moved in later.mechanisms {
            match self.mechanisms.iter_mut().find(|one| one.mechanism == moved.mechanism) {
                Some(one) => one.bytes = one.bytes.saturating_add(moved.bytes),
                None => self.mechanisms.push(moved),
            }
        }
        let tasks = self.tasks.saturating_add(later.tasks);
        let bytes = self.bytes.saturating_add(later.bytes);
        Self { tasks, bytes, mechanisms: self.mechanisms, ..later }
    }

    /// Creates the record of a worker without a report.
    pub(crate) fn unknown(name: &WorkerName) -> Self {
        Self {
            host: name.host.clone(),
            pid: name.pid,
            rank: name.rank,
            tasks: 0,
            bytes: 0,
            seconds: 0.0,
            mechanisms: Vec::new(),
            silent: 0.0,
            ended: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_files_name_it() {
        let own = WorkerName { host: "node-7.cluster".to_owned(), pid: 1, rank: 3, began: 0xab };
        let file = own.file("journal");
        assert_eq!(file.to_str(), Ok("journal.node-7.cluster-1-3-ab"));
        assert_eq!(WorkerName::parse(&file, "journal"), Some(own.clone()));
        for other in [c"journal.a-1-3", c"journal.a-01-3-1", c"report.a-1-3-1", c"journal.a-1--3-1"]
        {
            assert_eq!(WorkerName::parse(other, "journal"), None, "{other:?}");
        }
        let here = WorkerName::of_this(2, None);
        assert_eq!(WorkerName::parse(&here.file("report"), "report"), Some(here));
    }
}
