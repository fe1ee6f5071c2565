//! Who a worker is, and what it says of its work when it ends.

use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString},
    fmt,
    time::SystemTime,
};

use crate::TreeReport;

/// The longest report that is read.
pub(crate) const MOST: usize = 64 << 10;
/// Of a host's name more is left out.
const LONGEST_HOST: usize = 64;

/// A worker, as the names of its files have it: no other has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerName {
    pub host: String,
    pub pid: u32,
    pub rank: u32,
    // Process numbers come again, in a container the first ones always. It is compared with nothing.
    began: u64,
}

/// What a mechanism moved for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Its name.
    pub mechanism: String,
    /// Bytes.
    pub bytes: u64,
}

/// What is known of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The machine.
    pub host: String,
    /// The process there.
    pub pid: u32,
    /// Its number in the fleet.
    pub rank: u32,
    /// Tasks that it has noted.
    pub tasks: u64,
    /// Bytes that it moved for these.
    pub bytes: u64,
    /// Seconds from its beginning to the last of them, by its own clock.
    pub seconds: f64,
    /// Which mechanism moved how much; empty of a worker that left no report.
    pub mechanisms: Vec<Moved>,
    /// Seconds since its journal grew, by the times of its file system and the clock of who looks.
    pub silent: f64,
    /// It came to its own end. One that did not was killed, or still runs.
    pub ended: bool,
}

impl WorkerName {
    /// This process, as a worker of this rank; `began`: the one that had this number.
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

    /// The name of one of its files.
    pub fn file(&self, what: &str) -> CString {
        CString::new(format!("{what}.{self}")).unwrap_or_default()
    }

    /// Whose file this is.
    pub fn parse(file: &CStr, what: &str) -> Option<Self> {
        let name = file.to_str().ok()?.strip_prefix(what)?.strip_prefix('.')?;
        let mut parts = name.rsplitn(4, '-');
        let began = u64::from_str_radix(parts.next()?, 16).ok()?;
        let rank = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let host = parts.next()?.to_owned();
        let name = Self { host, pid, rank, began };
        // One way to write it, and no more of it than that.
        (name.host.len() <= LONGEST_HOST && name.file(what).as_c_str() == file).then_some(name)
    }
}

/// `HOST-PID-RANK-BEGAN`.
impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{:x}", self.host, self.pid, self.rank, self.began)
    }
}

impl WorkerRecord {
    /// What a worker can say of itself at its end.
    pub(crate) fn of(name: &WorkerName, tasks: u64, seconds: f64, report: &TreeReport) -> Self {
        let mechanisms = report.shares.iter();
        let mechanisms = mechanisms
            .map(|share| Moved { mechanism: share.mechanism.to_owned(), bytes: share.bytes });
        Self {
            mechanisms: mechanisms.collect(),
            ended: true,
            tasks,
            bytes: report.bytes,
            seconds,
            ..Self::unknown(name)
        }
    }

    /// What it says when it has worked once more.
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

    /// A worker that has said nothing yet.
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
