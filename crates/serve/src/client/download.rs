//! The destination of the bytes: a partial file with its journal in the directory of the final file, or a stream.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use thalweg_core::{
    End, Kind,
    atomic_file::{
        CallFailed, Destination, Fsync, failed,
        ownership::{LeftAlone, remove_own},
    },
};
use thalweg_sys::{Errno, io};
use thalweg_tree::{
    Ranges,
    install::{EntryAttributes, InheritFrom, KeptPath, inherit},
    journal::{JournalKeeper, JournalSource, LONGEST_URL, Remote, earlier},
};

use super::FetchError;

/// An open destination, and the ranges of it that are complete.
pub struct Download {
    destination: Destination,
    /// Directory and name of the journal, if the destination can have one.
    place: Option<(OwnedFd, CString)>,
    keeper: Option<JournalKeeper<OwnedFd>>,
    done: Ranges,
}

/// A local file that may share blocks with the fetched one: the file that it replaces, or the file under an earlier
/// name.
pub struct BaseFile {
    pub fd: OwnedFd,
    /// In bytes.
    pub size: u64,
}

impl BaseFile {
    /// Opens a regular file. Follows no link.
    pub fn open(directory: impl AsFd, name: &CStr) -> Option<Self> {
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // Checks the type first, because opening a device may have an effect.
        statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_file)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat(&directory, name, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = fstat(&fd).ok().filter(is_file)?;
        Some(Self { fd, size: u64::try_from(stat.st_size).ok()? })
    }
}

impl Download {
    /// Opens a destination. Partial data of an earlier run is not used yet.
    pub fn at(destination: Destination) -> Result<Self, FetchError> {
        let place = match &destination {
            Destination::Whole { file, .. } => match file.journal() {
                Some(name) => {
                    let directory = file.folder().try_clone_to_owned();
                    Some((directory.map_err(|_| failed("fcntl")(Errno::MFILE))?, name))
                }
                None => None,
            },
            Destination::Direct(_) => None,
        };
        Ok(Self { destination, place, keeper: None, done: Ranges::default() })
    }

    /// Returns the leftover of an earlier run that was not used because another user may have created it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        self.destination.left_alone()
    }

    /// Takes over the partial file that an earlier run left for this URL, if it can be trusted. Otherwise empties it.
    pub fn adopt(&mut self, url: &str) -> Result<Option<Remote>, FetchError> {
        let Some(remote) = self.left(url)? else {
            self.empty()?;
            return Ok(None);
        };
        self.begin(&remote)?;
        Ok(Some(remote))
    }

    fn left(&mut self, url: &str) -> Result<Option<Remote>, FetchError> {
        let (Destination::Whole { file, .. }, Some((directory, name))) =
            (&self.destination, &self.place)
        else {
            return Ok(None);
        };
        let Some(Ok(journal)) = earlier(directory.as_fd(), name).filter(|_| file.adopted) else {
            return Ok(None);
        };
        let there = fstat(&file.fd).map_err(failed("fstat"))?.st_size as u64;
        // After a crash of the machine, bytes that the journal lists may be missing from the file. The file cannot be
        // compared with the server's bytes, so the journal must be of this boot.
        let is_true = journal.is_of_this_boot() && journal.done.end() <= there;
        match journal.source {
            JournalSource::Remote(remote) if is_true && remote.url == url => {
                // If the file is complete, requests its last byte again. The response proves that the server still has
                // this version.
                let all_but_one = Ranges::up_to(remote.size.saturating_sub(1));
                let is_whole = journal.done.bytes() == remote.size;
                self.done = if is_whole { all_but_one } else { journal.done };
                Ok(Some(remote))
            }
            _ => Ok(None),
        }
    }

    /// Starts a journal, which records the complete ranges from now on.
    pub fn begin(&mut self, remote: &Remote) -> Result<(), FetchError> {
        let Some((directory, name)) = &self.place else { return Ok(()) };
        if remote.url.len() > LONGEST_URL {
            return Ok(());
        }
        let directory = directory.try_clone().map_err(|_| failed("fcntl")(Errno::MFILE))?;
        let mut keeper = JournalKeeper::new(
            directory,
            name.clone(),
            JournalSource::Remote(remote.clone()),
            true,
        );
        keeper.note_ranges(&self.done);
        keeper.write();
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Discards all bytes and the journal.
    pub fn empty(&mut self) -> Result<(), FetchError> {
        self.forget()?;
        if let Destination::Whole { file, .. } = &self.destination {
            io::ftruncate(&file.fd, 0).map_err(failed("ftruncate"))?;
        } else if self.done != Ranges::default() {
            // The reader of the stream already has bytes of another version.
            return Err(FetchError::Changing);
        }
        self.done = Ranges::default();
        Ok(())
    }

    fn forget(&mut self) -> Result<(), FetchError> {
        self.keeper = None;
        if let Some((directory, name)) = &self.place {
            remove_own(directory.as_fd(), name).map_err(failed("unlinkat"))?;
        }
        Ok(())
    }

    /// Records that the bytes from `from` to `to` are complete.
    pub fn note(&mut self, from: u64, to: u64) {
        self.done.add(from, to);
        if let Some(keeper) = &mut self.keeper {
            keeper.note_ranges(&self.done);
        }
    }

    /// Returns the complete ranges.
    pub fn done(&self) -> &Ranges {
        &self.done
    }

    /// Returns `true` if the fetch can restart after some bytes were moved.
    pub fn is_rewindable(&self) -> bool {
        matches!(self.destination, Destination::Whole { .. })
    }

    /// Duplicates the descriptor, so that bytes can be moved while this object is updated.
    pub fn descriptor(&self) -> Result<OwnedFd, FetchError> {
        let fd = self.destination.fd().try_clone_to_owned();
        Ok(fd.map_err(|_| failed("fcntl")(Errno::MFILE))?)
    }

    /// Returns the destination for the bytes from offset `at` of the file. A stream continues at its current position.
    pub fn end<'a>(&self, fd: BorrowedFd<'a>, at: u64) -> Result<End<'a>, FetchError> {
        let end = End::of(fd).map_err(failed("fstat"))?;
        let at = (end.kind == Kind::File && self.is_rewindable()).then_some(at);
        Ok(End { at, ..end })
    }

    /// Opens the file of the final name, if it is a regular file that can be read.
    pub fn replaced(&self) -> Option<BaseFile> {
        let Destination::Whole { file, .. } = &self.destination else { return None };
        BaseFile::open(file.folder(), file.name())
    }

    /// Returns the file, if it can be read back.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.is_rewindable().then(|| self.destination.fd())
    }

    /// Sets the attributes and publishes the file under its name. `kept`: the place where the replaced entry is kept.
    /// Returns the number of extended attributes that the file system refused.
    pub fn publish(
        mut self,
        attributes: Option<&EntryAttributes>,
        kept: Option<KeptPath<'_>>,
        fsync: Fsync,
    ) -> Result<u64, FetchError> {
        // A later fetch of a tree refetches files of other users. A file of a tree therefore does not inherit the owner
        // of another user's file.
        let from = if attributes.is_some() { InheritFrom::Own } else { InheritFrom::Anyone };
        inherit(&mut self.destination, from);
        let mut refused = 0;
        if let Destination::Whole { file, mode, .. } = &mut self.destination {
            // After a restart the file may be longer than the new version.
            io::ftruncate(&file.fd, self.done.end()).map_err(failed("ftruncate"))?;
            if let Some(attributes) = attributes {
                refused = attributes.give(file.fd.as_fd())?;
                *mode = None;
            }
        }
        if let Err(error) = self.prepare(kept, fsync) {
            drop(self.forget());
            return Err(error.into());
        }
        self.forget()?;
        self.destination.publish_synced(fsync)?;
        Ok(refused)
    }

    /// Syncs the file, and keeps the entry that it replaces.
    fn prepare(&self, kept: Option<KeptPath<'_>>, fsync: Fsync) -> Result<(), CallFailed> {
        // Syncs before the journal is removed: after a power failure the name refers to the complete file or to the
        // old one.
        if fsync == Fsync::Auto && self.is_rewindable() {
            io::sync_data(self.destination.fd()).map_err(failed("fdatasync"))?;
        }
        match (&self.destination, kept) {
            (Destination::Whole { file, replace: true, .. }, Some(kept)) => {
                kept.keep(file.folder(), file.name())
            }
            _ => Ok(()),
        }
    }

    /// Keeps the partial file if a later run can resume it. Returns `true` if so.
    pub fn leave(mut self) -> bool {
        match &mut self.keeper {
            Some(keeper) if self.done != Ranges::default() => {
                keeper.note_ranges(&self.done);
                keeper.write();
                self.destination.leave()
            }
            _ => {
                // If the journal cannot be removed now, the next run removes it.
                drop(self.forget());
                false
            }
        }
    }
}
