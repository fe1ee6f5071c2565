//! A destination file that is written first and gets its name when it is complete.
//!
//! A file that is not published is removed on drop, unless it is left for a resumed copy.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use std::{
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
};
use thalweg_core::atomic_file::{
    AtomicFile, Leftovers, create_new,
    lock::is_named,
    ownership::{LeftAlone, is_trap},
    unlink,
};
use thalweg_sys::{Errno, io};

use crate::{
    Backup, CopyOptions, Refusal,
    copy::{
        copy_entry::{CopyEntry, SourceFile},
        dest::{
            backup,
            existing::Existing,
            one_file::{is_one, may_be_one},
        },
        name_at::NameAt,
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::{Id, kind},
};

/// An open destination file.
pub(crate) enum DestinationFile<'a> {
    /// A file that is written under its own name. Its directory is not visible yet, or the caller requested this.
    Own { fd: OwnedFd, name_at: NameAt<'a>, published: bool },
    /// An existing file that is written into.
    Existing(OwnedFd),
    /// A file that has a temporary name, or no name, until it is complete.
    Hidden(AtomicFile<BorrowedFd<'a>, &'a CStr>),
}

impl<'a> DestinationFile<'a> {
    /// Creates a new file under its own name.
    pub fn own(name_at: NameAt<'a>, access: OFlags, mode: u32) -> Attempt<Self> {
        let fd = create_new(name_at.dir, name_at.name, access, mode).map_err(at_sink("openat"))?;
        Ok(Self::Own { fd, name_at, published: false })
    }

    /// Creates a file without a name; `None` if the file system does not support `O_TMPFILE`.
    pub fn nameless(name_at: NameAt<'a>, access: OFlags, mode: u32) -> Attempt<Option<Self>> {
        Ok(AtomicFile::nameless(name_at.dir, name_at.name, access, mode)?.map(Self::Hidden))
    }

    /// Creates or adopts a partial file under its usual temporary name.
    pub fn part(name_at: NameAt<'a>, leftovers: Leftovers) -> Attempt<Self> {
        Ok(Self::Hidden(AtomicFile::part(name_at.dir, name_at.name, leftovers)?))
    }

    /// Creates a file under a unique temporary name.
    pub fn apart(name_at: NameAt<'a>) -> Attempt<Self> {
        Ok(Self::Hidden(AtomicFile::apart(name_at.dir, name_at.name)?))
    }

    /// Opens an existing file to be written from its start. The file is truncated only after a check that it is not
    /// the source. The source may have been renamed to this name since the first comparison.
    pub fn existing(
        name_at: NameAt<'a>,
        access: OFlags,
        SourceFile { fd: source, stat }: SourceFile<'_>,
        source_path: &dyn Fn() -> PathBuf,
    ) -> Attempt<Self> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd =
            openat(name_at.dir, name_at.name, flags, Mode::empty()).map_err(at_sink("openat"))?;
        let own = fstat(&fd).map_err(at_sink("fstat"))?;
        let above = statat(name_at.dir, c".", AtFlags::empty()).map_err(at_sink("newfstatat"))?;
        if is_trap(&above, &own) {
            return Err(CopyFailure::Refused(Refusal::Trap));
        }
        if Id::of(&own) == Id::of(stat) {
            return Err(CopyFailure::Refused(Refusal::Replaced));
        }
        if may_be_one(stat, &own) && is_one(source, &fd, &own)? {
            return Err(CopyFailure::Refused(Refusal::SameFile(source_path())));
        }
        // Files of /proc and /sys cannot be truncated.
        if kind(&own) == FileType::RegularFile && own.st_size > 0 {
            io::ftruncate(&fd, 0).map_err(at_sink("ftruncate"))?;
        }
        Ok(Self::Existing(fd))
    }

    pub fn fd(&self) -> &OwnedFd {
        match self {
            Self::Own { fd, .. } | Self::Existing(fd) => fd,
            Self::Hidden(file) => &file.fd,
        }
    }

    /// Returns `true` if this run continues a file that an earlier run left.
    pub fn is_adopted(&self) -> bool {
        matches!(self, Self::Hidden(file) if file.adopted)
    }

    /// Returns `true` if the file has a temporary name and mode 0600.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Hidden(file) if file.is_part())
    }

    /// Returns the leftover partial file that was not used because another user may have created it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        match self {
            Self::Hidden(file) => file.left_alone.as_ref(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }

    /// Returns the name of the journal of this file, if it can have one.
    pub fn journal(&self) -> Option<CString> {
        match self {
            Self::Hidden(file) => file.journal(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }

    /// Gives the file its name. `keep`: fail with EEXIST instead of replacing an existing file.
    pub fn publish(&mut self, keep: bool) -> Attempt<()> {
        match self {
            Self::Own { published, .. } => *published = true,
            Self::Existing(_) => {}
            Self::Hidden(file) => file.publish(keep)?,
        }
        Ok(())
    }

    /// Keeps the partial file for a later run and returns its name. Returns `None` if no later run would find the file,
    /// which is then removed on drop.
    pub fn leave(&mut self) -> Option<&CStr> {
        match self {
            Self::Hidden(file) => file.leave(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }
}

/// Result of publishing a complete copy.
pub(crate) enum PublishOutcome {
    /// The copy has its name. Contains the name of the backup.
    Named(Option<CString>),
    /// The copy was skipped: another process created the name first, and the options forbid replacing a file.
    Skipped,
}

/// Gives the copy its name. Renames the replaced file first if a backup is requested.
pub(crate) fn publish(
    options: &CopyOptions,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    sink: &mut DestinationFile<'_>,
    name_at: NameAt<'_>,
    there: Option<&Existing>,
) -> Attempt<PublishOutcome> {
    if there.is_some_and(|there| there.is_written_into(options)) {
        return sink.publish(false).map(|()| PublishOutcome::Named(None));
    }
    if there.is_none() {
        // The name was free when it was checked. Another process may have created it since. In a new directory this
        // copy may have created it, if the file system treats two names as equal.
        let is_fresh = entry.directory.is_fresh;
        let is_wanted = is_fresh || options.replaces_nothing() || options.backup != Backup::None;
        match sink.publish(is_wanted) {
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if is_fresh => {
                return Err(CopyFailure::Refused(Refusal::JustCreated));
            }
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => {
                return Ok(PublishOutcome::Skipped);
            }
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if is_wanted => {}
            answer => return answer.map(|()| PublishOutcome::Named(None)),
        }
    }
    let backup = backup::set_aside(options, name_at, entry, stat)?;
    sink.publish(false).map(|()| PublishOutcome::Named(backup))
}

impl Drop for DestinationFile<'_> {
    fn drop(&mut self) {
        if let Self::Own { fd, name_at, published: false } = self
            // The name was visible, so another process may have replaced the file.
            && is_named(fd, name_at.dir, name_at.name).unwrap_or(false)
        {
            // `drop` cannot return an error.
            let _ = unlink(name_at.dir, name_at.name);
        }
    }
}
