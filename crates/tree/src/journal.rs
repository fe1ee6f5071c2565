//! The journal of an unfinished large file: how much of which source is in it.
//!
//! A JSON text whose size does not change, written by one `pwrite` over the last one: whoever is killed
//! leaves the old or the new one. What it says holds as long as the machine runs, for the page cache
//! outlives the process; after a restart the part has to be compared with its source.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

use crate::{
    identity::{ctime, mtime, size},
    ranges::Ranges,
};

mod keeper;

pub use keeper::{Keeper, earlier};

/// The version of the layout.
pub const SCHEMA: u32 = 2;
/// The size on disk of the journal of a local file: the longest possible text fits.
pub const SIZE: usize = 512;
/// The size of any other, and the most that is read: one page, of which a kill leaves all or nothing.
pub const MOST: usize = 4096;
/// The longest URL that a journal takes.
pub const LONGEST_URL: usize = 2048;
/// The longest validator that a journal takes.
pub const LONGEST_VALIDATOR: usize = 256;

/// What is known about an unfinished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What it is a copy of.
    pub source: Source,
    /// The bytes of the source that are in the part, at their places.
    pub done: Ranges,
    /// The start of the machine during which this was written.
    pub boot_id: String,
    /// In a staging directory: every file in it that was last changed before this moment (seconds and nanoseconds since
    /// 1970) is on stable storage. `None`: nothing was synced.
    pub synced_before: Option<(i64, u32)>,
}

/// The text of a journal.
#[derive(Serialize, Deserialize)]
struct Text {
    schema: u32,
    source: Source,
    done: Done,
    boot_id: String,
    // Absent in journals of earlier versions, which ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    synced_before: Option<(i64, u32)>,
}

/// What is done: of schema 1 a count of bytes from the start.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Done {
    Prefix(u64),
    Ranges(Ranges),
}

/// Where the bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Source {
    /// A file here.
    Local(Identity),
    /// A file of a server.
    Remote(Remote),
}

/// A file of a server, as it was when its first byte came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// As it was asked for, without user, password and fragment.
    pub url: String,
    /// What changes with it: a strong ETag with its quotes, or the date of a Last-Modified.
    pub validator: String,
    /// Weak ETag that came beside a Last-Modified. A response with another one is of another version.
    // Absent in journals of earlier versions, which ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak: Option<String>,
    /// Bytes.
    pub size: u64,
}

/// A source at one moment of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Time of modification: seconds, nanoseconds.
    pub mtime: (i64, u32),
    /// Time of the last change of anything: seconds, nanoseconds.
    pub ctime: (i64, u32),
}

/// Why a text is not a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is too long.
    #[error("{0} bytes are too many for a journal")]
    TooLong(usize),
    /// It is not JSON of this layout.
    #[error("not a journal: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Another version.
    #[error("journal of schema {0} where 1 and {SCHEMA} are understood")]
    Schema(u32),
    /// The numbers make no sense.
    #[error("journal: {0}")]
    Nonsense(&'static str),
}

impl Identity {
    /// Of a file, now.
    pub(crate) fn of(stat: &Stat) -> Self {
        let time = |(seconds, nanoseconds)| (seconds, nanoseconds as u32);
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: size(stat),
            mtime: time(mtime(stat)),
            ctime: time(ctime(stat)),
        }
    }
}

impl Source {
    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Local(identity) => identity.size,
            Self::Remote(remote) => remote.size,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    fn check(&self) -> Result<(), JournalError> {
        let nonsense = match self {
            Self::Local(Identity { mtime, ctime, .. }) => {
                let is_whole = mtime.1 < 1_000_000_000 && ctime.1 < 1_000_000_000;
                (!is_whole).then_some("a nanosecond beyond the second")
            }
            Self::Remote(Remote { url, validator, weak, .. }) => {
                let mut validators = [Some(validator), weak.as_ref()].into_iter().flatten();
                (url.len() > LONGEST_URL || validators.any(|text| text.len() > LONGEST_VALIDATOR))
                    .then_some("the URL or its validator is too long")
            }
        };
        nonsense.map_or(Ok(()), |why| Err(JournalError::Nonsense(why)))
    }
}

impl Journal {
    /// Reads a journal, believing nothing.
    pub fn parse(text: &[u8]) -> Result<Self, JournalError> {
        if text.len() > MOST {
            return Err(JournalError::TooLong(text.len()));
        }
        let Text { schema, source, done, boot_id, synced_before } = serde_json::from_slice(text)?;
        let done = match (schema, done) {
            (1, Done::Prefix(done)) if source.is_local() => Ranges::up_to(done),
            (SCHEMA, Done::Ranges(done)) => done,
            (1 | SCHEMA, _) => return Err(JournalError::Nonsense("of two schemas at once")),
            _ => return Err(JournalError::Schema(schema)),
        };
        if done.end() > source.size() {
            return Err(JournalError::Nonsense("more is done than there is"));
        }
        source.check()?;
        if boot_id.len() > 64 {
            return Err(JournalError::Nonsense("the boot id is too long"));
        }
        if synced_before.is_some_and(|(_, nanoseconds)| nanoseconds >= 1_000_000_000) {
            return Err(JournalError::Nonsense("a nanosecond beyond the second"));
        }
        Ok(Self { source, done, boot_id, synced_before })
    }

    /// The text on disk, filled up to this size. Ranges for which there is no room are left out, the
    /// shortest first: what is not said to be there is moved again.
    pub fn to_bytes(&self, room: usize) -> Vec<u8> {
        let mut done: Vec<(u64, u64)> = self.done.iter().collect();
        loop {
            let mut text = self.text(&done);
            if text.len() < room || done.is_empty() {
                text.resize(room.max(text.len() + 1) - 1, b' ');
                text.push(b'\n');
                return text;
            }
            let shortest = done.iter().enumerate().min_by_key(|(_, (from, to))| to - from);
            shortest.map(|(n, _)| n).map(|n| done.remove(n));
        }
    }

    fn text(&self, done: &[(u64, u64)]) -> Vec<u8> {
        let done = Ranges::try_from(done.to_vec()).unwrap_or_default();
        let text = Text {
            schema: SCHEMA,
            source: self.source.clone(),
            done: Done::Ranges(done),
            boot_id: self.boot_id.clone(),
            synced_before: self.synced_before,
        };
        serde_json::to_vec(&text).unwrap_or_default()
    }

    /// Whether it was written since the machine started, so that all it counts is still there.
    pub fn is_of_this_boot(&self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == boot_id()
    }
}

/// The kernel's name for this start of the machine; empty if it has none.
pub(crate) fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let time = (i64::MIN, 999_999_999);
        let source =
            Identity { dev: u64::MAX, ino: u64::MAX, size: u64::MAX, mtime: time, ctime: time };
        of(Source::Local(source), Ranges::up_to(u64::MAX))
    }

    fn of(source: Source, done: Ranges) -> Journal {
        let boot_id = "01234567-89ab-cdef-0123-456789abcdef".to_owned();
        Journal { source, done, boot_id, synced_before: Some((i64::MIN, 999_999_999)) }
    }

    fn remote(size: u64) -> Source {
        let url = "h".repeat(LONGEST_URL);
        let validator = "\"".repeat(LONGEST_VALIDATOR);
        Source::Remote(Remote { url, weak: Some(validator.clone()), validator, size })
    }

    #[test]
    fn the_longest_journal_fits_and_comes_back() {
        let bytes = journal().to_bytes(SIZE);
        assert_eq!(bytes.len(), SIZE);
        assert_eq!(Journal::parse(&bytes).unwrap(), journal());
    }

    #[test]
    fn of_too_many_ranges_the_shortest_are_left_out() {
        let mut done = Ranges::default();
        (0..500).for_each(|n| {
            done.add(u64::MAX - 1_000_000 + n * 1000, u64::MAX - 1_000_000 + n * 1001);
        });
        let bytes = of(remote(u64::MAX), done.clone()).to_bytes(MOST);
        assert_eq!(bytes.len(), MOST);
        let read = Journal::parse(&bytes).unwrap().done;
        assert!(read.bytes() > 0 && read.bytes() < done.bytes() && read.end() == done.end());
        let few = of(remote(9), Ranges::up_to(7));
        assert_eq!(Journal::parse(&few.to_bytes(MOST)).unwrap(), few);
    }

    #[test]
    fn a_journal_of_schema_1_is_still_read() {
        let text = br#"{"schema":1,"source":{"dev":1,"ino":2,"size":9,"mtime":[3,4],"ctime":[5,6]},
            "done":7,"boot_id":"b"}"#;
        let journal = Journal::parse(text).unwrap();
        assert_eq!((journal.done, journal.source.size()), (Ranges::up_to(7), 9));
        let text = String::from_utf8_lossy(text).replace("\"schema\":1", "\"schema\":2");
        assert!(matches!(Journal::parse(text.as_bytes()), Err(JournalError::Nonsense(_))));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Journal::parse(b"").is_err());
        assert!(Journal::parse(&vec![b' '; 5000]).is_err());
        let mut other = journal();
        other.boot_id = "x".repeat(65);
        assert!(matches!(Journal::parse(&other.to_bytes(MOST)), Err(JournalError::Nonsense(_))));
        let newer = String::from_utf8(journal().to_bytes(SIZE)).unwrap();
        let newer = newer.replace("\"schema\":2", "\"schema\":3");
        assert!(matches!(Journal::parse(newer.as_bytes()), Err(JournalError::Schema(3))));
        let more = of(remote(1), Ranges::up_to(2));
        assert!(matches!(Journal::parse(&more.to_bytes(MOST)), Err(JournalError::Nonsense(_))));
        let bytes = journal().to_bytes(SIZE);
        for cut in 0..bytes.len() {
            let _ = Journal::parse(&bytes[..cut]);
        }
    }

    #[test]
    fn this_boot_is_known_again() {
        let mut own = journal();
        assert!(!own.is_of_this_boot());
        boot_id().clone_into(&mut own.boot_id);
        assert_eq!(own.is_of_this_boot(), !boot_id().is_empty());
    }
}
