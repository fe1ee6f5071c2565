//! A destination file that is written, and gets its name when it is whole.
//!
//! What is not published is removed when it is dropped, unless it is to be resumed.

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
        copy_entry::CopyEntry,
        dest::{
            backup,
            conflict::Existing,
            one_file::{is_one, may_be_one},
        },
        name_at::NameAt,
    },
    error::{Attempt, Failure, at_sink},
    identity::{Id, kind},
};

/// An open destination file.
pub(crate) enum Sink<'a> {
    /// It is written under its own name, which is not visible yet, or which was asked for.
    Own { fd: OwnedFd, name_at: NameAt<'a>, published: bool },
    /// It was there before and is written into.
    Existing(OwnedFd),
    /// It has another name, or none, until it is whole.
    Hidden(AtomicFile<BorrowedFd<'a>, &'a CStr>),
}

impl<'a> Sink<'a> {
    /// A new file under its own name.
    pub fn own(name_at: NameAt<'a>, access: OFlags, mode: u32) -> Attempt<Self> {
        let fd = create_new(name_at.dir, name_at.name, access, mode).map_err(at_sink("openat"))?;
        Ok(Self::Own { fd, name_at, published: false })
    }

    /// A file without a name; `None` where the file system has no such thing.
    pub fn nameless(name_at: NameAt<'a>, access: OFlags, mode: u32) -> Attempt<Option<Self>> {
        Ok(AtomicFile::nameless(name_at.dir, name_at.name, access, mode)?.map(Self::Hidden))
    }

    /// A file under the name of an unfinished one.
    pub fn part(name_at: NameAt<'a>, leftovers: Leftovers) -> Attempt<Self> {
        Ok(Self::Hidden(AtomicFile::part(name_at.dir, name_at.name, leftovers)?))
    }

    /// A file under a name that nobody else uses.
    pub fn apart(name_at: NameAt<'a>) -> Attempt<Self> {
        Ok(Self::Hidden(AtomicFile::apart(name_at.dir, name_at.name)?))
    }

    /// A file that is there already, to be written into from its start. It is emptied only once it is
    /// known not to be the source, which may have got this name since the two were compared.
    pub fn existing(
        name_at: NameAt<'a>,
        access: OFlags,
        (source, stat): (&OwnedFd, &Stat),
        source_path: &dyn Fn() -> PathBuf,
    ) -> Attempt<Self> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd =
            openat(name_at.dir, name_at.name, flags, Mode::empty()).map_err(at_sink("openat"))?;
        let own = fstat(&fd).map_err(at_sink("fstat"))?;
        let above = statat(name_at.dir, c".", AtFlags::empty()).map_err(at_sink("newfstatat"))?;
        if is_trap(&above, &own) {
            return Err(Failure::Refused(Refusal::Trap));
        }
        if Id::of(&own) == Id::of(stat) {
            return Err(Failure::Refused(Refusal::Replaced));
        }
        if may_be_one(stat, &own) && is_one(source, &fd, &own)? {
            return Err(Failure::Refused(Refusal::SameFile(source_path())));
        }
        // Files of /proc and /sys have no length to take away.
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

    /// An earlier run left it, and this one goes on with it.
    pub fn is_adopted(&self) -> bool {
        matches!(self, Self::Hidden(file) if file.adopted)
    }

    /// Whether it has a temporary name, and the mode 0600.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Hidden(file) if file.is_part())
    }

    /// The leftover that was not used, as another user may have made it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        match self {
            Self::Hidden(file) => file.left_alone.as_ref(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }

    /// The name of this file's journal, if it can have one.
    pub fn journal(&self) -> Option<CString> {
        match self {
            Self::Hidden(file) => file.journal(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }

    /// Gives the file its name. `keep`: fail with EEXIST rather than replace what has it.
    pub fn publish(&mut self, keep: bool) -> Attempt<()> {
        match self {
            Self::Own { published, .. } => *published = true,
            Self::Existing(_) => {}
            Self::Hidden(file) => file.publish(keep)?,
        }
        Ok(())
    }

    /// Leaves the unfinished file for a later run, under the name it returns; `None` if no later run
    /// would find it: then it goes.
    pub fn leave(&mut self) -> Option<&CStr> {
        match self {
            Self::Hidden(file) => file.leave(),
            Self::Own { .. } | Self::Existing(_) => None,
        }
    }
}

/// What became of a complete copy.
pub(crate) enum Published {
    /// It has its name; the name of the backup.
    Named(Option<CString>),
    /// Nothing may be replaced, and another process was faster.
    Skipped,
}

/// Gives the copy its name; renames the file that it replaces if a backup is wanted.
pub(crate) fn publish(
    options: &CopyOptions,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    (sink, name_at): (&mut Sink<'_>, NameAt<'_>),
    there: Option<&Existing>,
) -> Attempt<Published> {
    if there.is_some_and(|there| there.is_written_into(options)) {
        return sink.publish(false).map(|()| Published::Named(None));
    }
    if there.is_none() {
        // The name was free. Another process has created a file there, or, in a new directory, this copy has created one whose
        // name the file system takes for the same.
        let is_fresh = entry.directory.is_fresh;
        let is_wanted = is_fresh || options.replaces_nothing() || options.backup != Backup::None;
        match sink.publish(is_wanted) {
            Err(Failure::Sink(_, Errno::EXIST, _)) if is_fresh => {
                return Err(Failure::Refused(Refusal::JustCreated));
            }
            Err(Failure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => {
                return Ok(Published::Skipped);
            }
            Err(Failure::Sink(_, Errno::EXIST, _)) if is_wanted => {}
            answer => return answer.map(|()| Published::Named(None)),
        }
    }
    let backup = backup::set_aside(options, name_at, entry, stat)?;
    sink.publish(false).map(|()| Published::Named(backup))
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        if let Self::Own { fd, name_at, published: false } = self
            // All could see it, and another file may have been put in its place.
            && is_named(fd, name_at.dir, name_at.name).unwrap_or(false)
        {
            // An error has no reader any more.
            let _ = unlink(name_at.dir, name_at.name);
        }
    }
}

/// Lets go of an error on a way that already reports a more telling one.
pub(crate) fn ignore<T>(_: Result<T, Errno>) {}
