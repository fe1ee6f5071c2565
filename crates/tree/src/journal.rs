//! The journal of an unfinished large file: how much of which source is in it.
//!
//! A fixed-size JSON text, written by one `pwrite` over the last one: whoever is killed leaves the
//! old or the new one. What it says holds as long as the machine runs, for the page cache outlives
//! the process; after a restart the part has to be compared with its source.

use rustix::fs::{Mode, OFlags, Stat, openat};
use serde::{Deserialize, Serialize};
use std::{
    ffi::CString,
    os::fd::{BorrowedFd, OwnedFd},
    sync::OnceLock,
    time::{Duration, Instant},
};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::io;

use crate::{
    error::{Attempt, at_sink},
    identity::{ctime, mtime, size},
};

/// The version of the layout.
pub const SCHEMA: u32 = 1;
/// The size of a journal on disk: the longest possible text fits.
pub const SIZE: usize = 512;

/// What is known about an unfinished file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Layout version, [`SCHEMA`].
    pub schema: u32,
    /// The source it is a copy of.
    pub source: Identity,
    /// Bytes from the start of the source that are in the part.
    pub done: u64,
    /// The start of the machine during which this was written.
    pub boot_id: String,
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
    #[error("journal of schema {0} where {SCHEMA} is understood")]
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

impl Journal {
    /// Reads a journal, believing nothing.
    pub fn parse(text: &[u8]) -> Result<Self, JournalError> {
        if text.len() > 8 * SIZE {
            return Err(JournalError::TooLong(text.len()));
        }
        let journal: Self = serde_json::from_slice(text)?;
        let Self { schema, source, done, boot_id } = &journal;
        if *schema != SCHEMA {
            return Err(JournalError::Schema(*schema));
        }
        if *done > source.size {
            return Err(JournalError::Nonsense("more is done than there is"));
        }
        if source.mtime.1 >= 1_000_000_000 || source.ctime.1 >= 1_000_000_000 {
            return Err(JournalError::Nonsense("a nanosecond beyond the second"));
        }
        if boot_id.len() > 64 {
            return Err(JournalError::Nonsense("the boot id is too long"));
        }
        Ok(journal)
    }

    /// The text on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.resize(SIZE.max(text.len() + 1) - 1, b' ');
        text.push(b'\n');
        text
    }

    /// Whether it was written since the machine started, so that all it counts is still there.
    pub(crate) fn is_of_this_boot(&self) -> bool {
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

/// Keeps the journal of one transfer.
pub(crate) struct Keeper<'a> {
    dir: BorrowedFd<'a>,
    name: CString,
    journal: Journal,
    file: Option<OwnedFd>,
    exists: bool,
    due: Instant,
}

// A transfer shorter than this is begun anew faster than its journal is read.
const INTERVAL: Duration = Duration::from_millis(100);

impl<'a> Keeper<'a> {
    /// Nothing is written yet. `exists`: an earlier run may have left a journal.
    pub fn new((dir, name): (BorrowedFd<'a>, CString), source: &Stat, exists: bool) -> Self {
        let journal = Journal {
            schema: SCHEMA,
            source: Identity::of(source),
            done: 0,
            boot_id: boot_id().to_owned(),
        };
        Self { dir, name, journal, file: None, exists, due: Instant::now() + INTERVAL }
    }

    /// Notes how much is done, and writes it now and then.
    pub fn note(&mut self, done: u64) {
        self.journal.done = done.min(self.journal.source.size);
        let now = Instant::now();
        if now >= self.due {
            self.due = now + INTERVAL;
            self.write();
        }
    }

    /// Writes what was noted last. A journal that cannot be written makes a later run slower, not
    /// wrong, so nobody hears of it.
    pub fn write(&mut self) {
        if self.file.is_none() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.file = openat(self.dir, &*self.name, flags, Mode::RUSR | Mode::WUSR).ok();
        }
        let Some(file) = &self.file else { return };
        self.exists = true;
        if io::pwrite(file, &self.journal.to_bytes(), 0) != Ok(SIZE) {
            // Nothing says less than half a text.
            self.file = None;
            let _ = unlink(self.dir, &self.name);
        }
    }

    /// Removes what it says so far, or what an earlier run left: it must not be there with bytes it
    /// does not speak of, nor when the name of the part is free for others.
    pub fn forget(&mut self) -> Attempt<()> {
        self.file = None;
        if self.exists {
            unlink(self.dir, &self.name).map_err(at_sink("unlinkat"))?;
            self.exists = false;
        }
        Ok(())
    }

    /// What an earlier run left.
    pub fn earlier(&self) -> Option<Result<Journal, JournalError>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(self.dir, &*self.name, flags, Mode::empty()).ok()?;
        let mut text = [0; 8 * SIZE];
        let len = io::pread(&file, &mut text, 0).ok()?;
        Some(Journal::parse(text.get(..len)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let time = (i64::MIN, 999_999_999);
        let source =
            Identity { dev: u64::MAX, ino: u64::MAX, size: u64::MAX, mtime: time, ctime: time };
        let boot_id = "01234567-89ab-cdef-0123-456789abcdef".to_owned();
        Journal { schema: SCHEMA, source, done: u64::MAX, boot_id }
    }

    #[test]
    fn the_longest_journal_fits_and_comes_back() {
        let bytes = journal().to_bytes();
        assert_eq!(bytes.len(), SIZE);
        assert_eq!(Journal::parse(&bytes).unwrap(), journal());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Journal::parse(b"").is_err());
        assert!(Journal::parse(&vec![b' '; 5000]).is_err());
        let mut other = journal();
        other.schema = 2;
        assert!(matches!(Journal::parse(&other.to_bytes()), Err(JournalError::Schema(2))));
        let mut more = journal();
        more.source.size = 1;
        assert!(matches!(Journal::parse(&more.to_bytes()), Err(JournalError::Nonsense(_))));
        let bytes = journal().to_bytes();
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
