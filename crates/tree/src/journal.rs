//! The journal of a partial large file. It records the source and the ranges that are already copied.
//!
//! The journal is a JSON text of constant size. One `pwrite` replaces it, so a killed process leaves the old or the new
//! text. Its contents are valid until the next reboot, because the page cache outlives the process. After a reboot the
//! partial file must be compared with its source.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, sync::OnceLock};

use crate::{
    identity::{ctime, mtime, size},
    ranges::Ranges,
};

mod keeper;

pub use keeper::{JournalKeeper, earlier};

/// The version of the format.
pub const SCHEMA: u32 = 2;
/// Size on disk of the journal of a local file, in bytes. The longest possible text of such a journal fits.
pub const SIZE: usize = 512;
/// Size of any other journal, and maximum size that is read. A kill cannot interrupt a write of one page.
pub const MOST: usize = 4096;
/// Maximum length of a URL in a journal.
pub const LONGEST_URL: usize = 2048;
/// Maximum length of a validator in a journal.
pub const LONGEST_VALIDATOR: usize = 256;

/// The recorded state of a partial file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The source of the copy.
    pub source: JournalSource,
    /// The ranges of the source that are in the partial file, at equal offsets.
    pub done: Ranges,
    /// The boot during which the journal was written.
    pub boot_id: String,
    /// In a staging directory: every file in it that was last changed before this moment (seconds and nanoseconds since
    /// 1970) is on stable storage. `None`: nothing was synced.
    pub synced_before: Option<(i64, u32)>,
}

/// The serialized form of a journal.
#[derive(Serialize, Deserialize)]
struct Text {
    schema: u32,
    source: JournalSource,
    done: Done,
    boot_id: String,
    // This field is unknown to earlier versions, which ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    synced_before: Option<(i64, u32)>,
}

/// The completed ranges. In schema 1, this is the number of bytes from the start.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Done {
    Prefix(u64),
    Ranges(Ranges),
}

/// The source of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JournalSource {
    /// A local file.
    Local(Identity),
    /// A file on a server.
    Remote(Remote),
}

/// A file on a server, as it was when its first byte was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The requested URL, without user, password and fragment.
    pub url: String,
    /// The validator: a strong ETag with its quotes, or the date of a Last-Modified header.
    pub validator: String,
    /// The weak ETag that accompanied a Last-Modified header. A response with another weak ETag is of another version.
    /// Earlier versions ignore this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak: Option<String>,
    /// Size in bytes.
    pub size: u64,
}

/// The state of a source file at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
    /// Change time: seconds, nanoseconds.
    pub ctime: (i64, u32),
}

/// The reason why a text is not a valid journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The text is too long.
    #[error("journal too large ({0} bytes)")]
    TooLong(usize),
    /// The text is not JSON of this format.
    #[error("not a journal: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The text has an unsupported version.
    #[error("unsupported journal schema {0} (supported: 1 and {SCHEMA})")]
    Schema(u32),
    /// The values are inconsistent.
    #[error("invalid journal: {0}")]
    Nonsense(&'static str),
}

impl Identity {
    /// Returns the current state of a file.
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: size(stat),
            mtime: mtime(stat),
            ctime: ctime(stat),
        }
    }
}

impl JournalSource {
    /// Returns the size in bytes.
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
                (!is_whole).then_some("nanoseconds out of range")
            }
            Self::Remote(Remote { url, validator, weak, .. }) => {
                let mut validators = [Some(validator), weak.as_ref()].into_iter().flatten();
                (url.len() > LONGEST_URL || validators.any(|text| text.len() > LONGEST_VALIDATOR))
                    .then_some("URL or validator too long")
            }
        };
        nonsense.map_or(Ok(()), |why| Err(JournalError::Nonsense(why)))
    }
}

impl Journal {
    /// Parses a journal and validates every field.
    pub fn parse(text: &[u8]) -> Result<Self, JournalError> {
        if text.len() > MOST {
            return Err(JournalError::TooLong(text.len()));
        }
        let Text { schema, source, done, boot_id, synced_before } = serde_json::from_slice(text)?;
        let done = match (schema, done) {
            (1, Done::Prefix(done)) if source.is_local() => Ranges::up_to(done),
            (SCHEMA, Done::Ranges(done)) => done,
            (1 | SCHEMA, _) => {
                return Err(JournalError::Nonsense("mixes the fields of two schemas"));
            }
            _ => return Err(JournalError::Schema(schema)),
        };
        if done.end() > source.size() {
            return Err(JournalError::Nonsense("completed ranges exceed the size"));
        }
        source.check()?;
        if boot_id.len() > 64 {
            return Err(JournalError::Nonsense("boot ID too long"));
        }
        if synced_before.is_some_and(|(_, nanoseconds)| nanoseconds >= 1_000_000_000) {
            return Err(JournalError::Nonsense("nanoseconds out of range"));
        }
        Ok(Self { source, done, boot_id, synced_before })
    }

    /// Serializes the journal, padded to `room` bytes. If not all ranges fit, the shortest ones are dropped, and their
    /// bytes are moved again later.
    pub fn to_bytes(&self, room: usize) -> Vec<u8> {
        // Each range needs room for its text and a comma. Instead of the last comma, the newline at the end is stored.
        let mut left = room.saturating_sub(self.text(&[]).len());
        let mut done: Vec<(u64, u64)> = self.done.iter().collect();
        done.sort_by_key(|(from, to)| Reverse(to - from));
        let fitting = done.iter().take_while(|(from, to)| {
            let rest = left.checked_sub(format!("[{from},{to}],").len());
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        let count = fitting.count();
        done.truncate(count);
        done.sort_unstable();
        let mut text = self.text(&done);
        text.resize(room.max(text.len() + 1) - 1, b' ');
        text.push(b'\n');
        text
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

    /// Returns `true` if the journal was written during this boot, so that all recorded bytes still exist.
    pub fn is_of_this_boot(&self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == boot_id()
    }
}

/// Returns the kernel's boot ID; empty if it is not available.
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
        of(JournalSource::Local(source), Ranges::up_to(u64::MAX))
    }

    fn of(source: JournalSource, done: Ranges) -> Journal {
        let boot_id = "01234567-89ab-cdef-0123-456789abcdef".to_owned();
        Journal { source, done, boot_id, synced_before: Some((i64::MIN, 999_999_999)) }
    }

    fn remote(size: u64) -> JournalSource {
        let url = "h".repeat(LONGEST_URL);
        let validator = "\"".repeat(LONGEST_VALIDATOR);
        JournalSource::Remote(Remote { url, weak: Some(validator.clone()), validator, size })
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
