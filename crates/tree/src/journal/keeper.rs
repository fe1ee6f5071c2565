//! Maintains the journal of one transfer beside its partial file.

use rustix::fs::{OFlags, fstat};
use std::{
    ffi::CString,
    os::fd::{BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};
use thalweg_core::atomic_file::{
    create_new,
    ownership::{open_own, remove_own},
    unlink,
};
use thalweg_sys::{Errno, io};

use super::{Journal, JournalError, JournalSource, MOST, SIZE, boot_id};
use crate::{identity::size, ranges::Ranges, times::Time};

/// Writes the progress of a transfer to its journal at intervals.
#[derive(Debug)]
pub struct JournalKeeper<D> {
    dir: D,
    name: CString,
    journal: Journal,
    file: Option<(OwnedFd, usize)>,
    exists: bool,
    due: Instant,
}

// A shorter transfer needs no journal, because repeating the transfer is faster than reading a journal.
const INTERVAL: Duration = Duration::from_millis(100);

impl<D: std::os::fd::AsFd> JournalKeeper<D> {
    /// Creates a keeper, but no file. `exists` is `true` if an earlier run may have left a journal.
    pub fn new(dir: D, name: CString, source: JournalSource, exists: bool) -> Self {
        // Few transfers take long enough to write a journal, so the boot ID is read only when a journal is written.
        let (done, boot_id) = (Ranges::default(), String::new());
        let journal = Journal { source, done, boot_id, synced_before: None };
        Self { dir, name, journal, file: None, exists, due: Instant::now() + INTERVAL }
    }

    /// Records the number of bytes that are complete from the start. Writes the journal if the interval has passed.
    pub fn note(&mut self, done: u64) {
        self.note_ranges(&Ranges::up_to(done.min(self.journal.source.size())));
    }

    /// Records the complete ranges. Writes the journal if the interval has passed.
    pub fn note_ranges(&mut self, done: &Ranges) {
        self.journal.done.clone_from(done);
        let now = Instant::now();
        if now >= self.due {
            self.due = now + INTERVAL;
            self.write();
        }
    }

    /// Writes the recorded state. Ignores a failure, because without a journal a later run is only slower.
    pub fn write(&mut self) {
        if self.file.is_none() {
            self.file = self.open();
        }
        let Some((file, room)) = &self.file else { return };
        self.exists = true;
        if self.journal.boot_id.is_empty() {
            boot_id().clone_into(&mut self.journal.boot_id);
        }
        // One call replaces everything that an earlier run wrote, so the journal is never empty.
        let text = self.journal.to_bytes(*room);
        if text.len() > MOST || io::pwrite(file, &text, 0) != Ok(text.len()) {
            // An incomplete journal would be useless, so it is removed.
            self.file = None;
            let _ = unlink(self.dir.as_fd(), &self.name);
        }
    }

    /// Records that all files in the directory which were last changed before this moment are on stable storage.
    pub(crate) fn note_synced_before(&mut self, moment: Time) {
        self.journal.synced_before = Some(moment);
    }

    /// Opens or creates the journal. Returns `None` if another user owns the name. The transfer then has no journal.
    fn open(&self) -> Option<(OwnedFd, usize)> {
        let dir = self.dir.as_fd();
        let file = match create_new(dir, &self.name, OFlags::WRONLY, 0o600) {
            Err(Errno::EXIST) => open_own(dir, &self.name, OFlags::WRONLY).ok()??,
            created => created.ok()?,
        };
        let there = size(&fstat(&file).ok()?);
        if there > MOST as u64 {
            io::ftruncate(&file, 0).ok()?;
        }
        // The journal of a remote source has the maximum size from the start, because its list of ranges grows.
        let least = if self.journal.source.is_local() { SIZE } else { MOST };
        Some((file, least.max((there as usize).min(MOST))))
    }

    /// Removes the journal. The caller must do this before the partial file gets contents that the journal does not
    /// describe. It must also do this before other processes may use the name of the partial file.
    pub fn forget(&mut self) -> Result<(), Errno> {
        self.file = None;
        if self.exists {
            remove_own(self.dir.as_fd(), &self.name)?;
            self.exists = false;
        }
        Ok(())
    }

    /// Returns the journal that an earlier run left.
    pub fn earlier(&self) -> Option<Result<Journal, JournalError>> {
        earlier(self.dir.as_fd(), &self.name)
    }
}

/// Returns the journal of this name that an earlier run left. A journal that another user may have written is
/// ignored.
pub fn earlier(
    dir: BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> Option<Result<Journal, JournalError>> {
    let file = open_own(dir, name, OFlags::RDONLY).ok()??;
    let mut text = [0; MOST];
    let len = io::pread(&file, &mut text, 0).ok()?;
    Some(Journal::parse(text.get(..len)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Identity, JournalSource};
    use rustix::fs::{FileType, Mode, mknodat};
    use std::{fs, os::fd::AsFd};

    #[test]
    fn a_journal_that_another_user_may_have_made_is_neither_read_nor_written_and_never_blocks() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let dir = fs::File::open(place.path()).unwrap();
        let source = || JournalSource::Local(Identity::of(&fstat(&dir).unwrap()));
        let keeper = || JournalKeeper::new(dir.as_fd(), c"journal".to_owned(), source(), true);
        mknodat(&dir, c"journal", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        keeper().write();
        assert!(keeper().earlier().is_none());
        keeper().forget().unwrap();
        assert!(at("journal").exists());
        fs::remove_file(at("journal")).unwrap();
        keeper().write();
        assert!(keeper().earlier().is_some());
        // A journal with a second hard link is not used, because another process may write it under its other name.
        fs::hard_link(at("journal"), at("victim")).unwrap();
        let text = fs::read(at("victim")).unwrap();
        let mut later = keeper();
        later.note(1);
        later.write();
        assert_eq!(fs::read(at("victim")).unwrap(), text);
        assert!(keeper().earlier().is_none());
        fs::remove_file(at("victim")).unwrap();
        keeper().forget().unwrap();
        assert!(!at("journal").exists());
    }
}
