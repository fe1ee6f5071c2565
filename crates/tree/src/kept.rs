//! A directory that keeps the entries which a sync replaces or deletes (`--trash`).
//!
//! A kept entry has the same path below the directory of kept entries as in the destination. If that name is taken,
//! the name of the entry gets a number. An entry that was kept earlier is never replaced.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use std::{
    ffi::{CStr, CString},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::{Fsync, followed::open_directory, name::unique};
use thalweg_sys::{Errno, host::filesystem, io};

use crate::{
    Error,
    error::{Attempt, CopyFailure, at_path, at_sink, has_no_links},
    fs::list::DIRECTORY,
    identity::{Id, kind},
    names::{c_string, os},
};

/// An open directory for entries that are replaced or deleted.
#[derive(Debug)]
pub struct KeptEntries {
    root: OwnedFd,
    path: PathBuf,
    id: Id,
    copy: CopyFunction,
    fsync: Fsync,
    /// `true` if names are synced by syncfs(2) instead of fsync(2).
    ///
    /// On btrfs, fsync(2) of a directory also logs the files in it, with their current names. A kept file may have lost
    /// its old name to a new file. After a power failure, this log would delete the old name, and thus the new file.
    syncs_whole: bool,
}

/// Copies one entry with all attributes from a path to a free path.
pub(crate) type CopyFunction = fn(&Path, &Path, Fsync) -> Result<(), Errno>;

/// Largest number that is appended to a name.
const MOST_NUMBERS: u32 = 100_000;

impl KeptEntries {
    /// Opens the directory, and creates it for this user if it does not exist. `copy` copies entries that cannot be
    /// renamed, because they are on another file system.
    pub(crate) fn open(path: &Path, fsync: Fsync, copy: CopyFunction) -> Result<Self, Error> {
        let failed = |call| at_path(path, call);
        let open = || open_directory(path, OFlags::RDONLY);
        let root = match open() {
            Err(Errno::NOENT) => {
                mkdirat(CWD, path, Mode::RWXU).map_err(failed("mkdirat"))?;
                open()
            }
            opened => opened,
        };
        let root = root.map_err(failed("openat"))?;
        let id = Id::of(&fstat(&root).map_err(failed("fstat"))?);
        let syncs_whole = filesystem(&root).map_err(failed("statfs"))?.name == "btrfs";
        Ok(Self { root, path: path.to_owned(), id, copy, fsync, syncs_whole })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Returns `true` if `id` identifies this directory.
    pub(crate) fn is(&self, id: Id) -> bool {
        self.id == id
    }

    /// Keeps a file that a rename is about to replace. If a hard link is possible, the file also keeps its name until
    /// the rename. Unless `fsync` is `Never`, the kept name is on stable storage when this function returns. Otherwise
    /// the rename could reach the disk first, as on btrfs.
    pub(crate) fn keep_replaced(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        below: &Path,
    ) -> Attempt<()> {
        let parent = match self.put(below, |to, new| io::link(dir, name, to, new)) {
            Err(CopyFailure::Sink(_, Errno::XDEV, _)) => self.copy_and_place(dir, name, below)?,
            Err(CopyFailure::Sink(_, errno, _)) if has_no_links(errno) => {
                self.move_here(dir, name, below)?
            }
            answer => answer?,
        };
        self.sync(&parent)
    }

    /// Moves an entry that is not a directory into this directory.
    pub(crate) fn take(&self, dir: BorrowedFd<'_>, name: &CStr, below: &Path) -> Attempt<()> {
        self.move_here(dir, name, below).map(drop)
    }

    fn move_here(&self, dir: BorrowedFd<'_>, name: &CStr, below: &Path) -> Attempt<OwnedFd> {
        let moved = self.put(below, |to, new| io::rename_new(dir, name, to, new));
        match moved {
            Err(CopyFailure::Sink(_, Errno::XDEV, _)) => {
                let parent = self.copy_and_place(dir, name, below)?;
                self.sync(&parent)?;
                unlinkat(dir, name, AtFlags::empty()).map_err(at_sink("unlinkat"))?;
                Ok(parent)
            }
            answer => answer,
        }
    }

    fn sync(&self, parent: &OwnedFd) -> Attempt<()> {
        match self.fsync {
            Fsync::Never => Ok(()),
            _ if self.syncs_whole => io::sync_filesystem(parent).map_err(at_sink("syncfs")),
            _ => io::sync(parent).map_err(at_sink("fsync")),
        }
    }

    /// Copies an entry from another file system into this directory.
    fn copy_and_place(&self, dir: BorrowedFd<'_>, name: &CStr, below: &Path) -> Attempt<OwnedFd> {
        let (parent, last) = self.parent_of(below)?;
        let temporary = unique(&last);
        let path = |dir: BorrowedFd<'_>, name: &CStr| {
            PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(os(name))
        };
        // The copy function takes paths, so each open directory is passed as its path in /proc. It refuses reserved
        // names, so the temporary name must not look like one.
        let plain = CString::new([b"kept-", temporary.to_bytes(), b"-new"].concat());
        let plain = plain.unwrap_or_default();
        // The caller then deletes or replaces the original, so the copy must already be on stable storage.
        let fsync = if self.fsync == Fsync::Never { Fsync::Never } else { Fsync::Always };
        let copied = (self.copy)(&path(dir, name), &path(parent.as_fd(), &plain), fsync);
        copied.map_err(at_sink("write"))?;
        self.put(below, |to, new| io::rename_new(parent.as_fd(), &*plain, to, new))
    }

    /// Calls `place` with the last name of the path. If that name exists, tries the name with a number. Returns the
    /// directory.
    fn put(
        &self,
        below: &Path,
        place: impl Fn(BorrowedFd<'_>, &CStr) -> Result<(), Errno>,
    ) -> Attempt<OwnedFd> {
        let (parent, name) = self.parent_of(below)?;
        let mut candidate = name.clone();
        for number in 1..MOST_NUMBERS {
            match place(parent.as_fd(), &candidate) {
                Err(Errno::EXIST) => candidate = numbered(&name, number),
                Err(errno) => return Err(at_sink("renameat2")(errno)),
                Ok(()) => return Ok(parent),
            }
        }
        Err(CopyFailure::Sink("renameat2", Errno::EXIST, 0))
    }

    /// Opens the directory that receives a path. Creates missing directories. If another entry has the name of a
    /// directory, a number is appended to the directory's name.
    fn parent_of(&self, below: &Path) -> Attempt<(OwnedFd, CString)> {
        let name = below.file_name().unwrap_or_default();
        let name = c_string(name).map_err(|_| CopyFailure::Sink("openat", Errno::INVAL, 0))?;
        let mut here =
            self.root.try_clone().map_err(|_| CopyFailure::Sink("fcntl", Errno::MFILE, 0))?;
        for part in below.parent().into_iter().flat_map(Path::components) {
            let part = CString::new(part.as_os_str().as_bytes()).unwrap_or_default();
            here = folder(here.as_fd(), &part)?;
        }
        Ok((here, name))
    }
}

fn folder(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<OwnedFd> {
    let mut candidate = name.to_owned();
    for number in 1..MOST_NUMBERS {
        match mkdirat(dir, &*candidate, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(CopyFailure::Sink("mkdirat", errno, 0)),
        }
        let found = statat(dir, &*candidate, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| kind(&stat) == FileType::Directory) {
            return openat(dir, &*candidate, DIRECTORY, Mode::empty()).map_err(at_sink("openat"));
        }
        candidate = numbered(name, number);
    }
    Err(CopyFailure::Sink("mkdirat", Errno::EXIST, 0))
}

fn numbered(name: &CStr, number: u32) -> CString {
    let suffix = format!(".~{number}~");
    let bytes = name.to_bytes();
    let most = 255 - suffix.len();
    let start = &bytes[..bytes.len().min(most)];
    CString::new([start, suffix.as_bytes()].concat()).unwrap_or_default()
}
