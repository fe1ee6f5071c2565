//! The destination of a tree: an existing directory, or a new one that appears when it is complete.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, CWD, OFlags, statat};
use thalweg_core::atomic_file::{DestinationError, Fsync, failed, followed::open_directory};
use thalweg_sys::{Errno, io};
use thalweg_tree::{
    install::{EntryAttributes, RemoteStage, WholeSync},
    journal::Remote,
};

use crate::client::FetchError;

/// The destination of a tree.
pub enum TreeDestination {
    /// An existing directory.
    There(OwnedFd),
    /// A new directory: its parent, and its name.
    New(OwnedFd, CString),
}

/// The directory that receives the entries.
pub enum TreeRoot {
    There(OwnedFd),
    Stage(Box<RemoteStage>),
}

impl TreeDestination {
    /// Opens the destination at this path.
    pub fn open(path: &Path) -> Result<Self, FetchError> {
        match open_directory(path, OFlags::RDONLY) {
            Ok(fd) => return Ok(Self::There(fd)),
            Err(Errno::NOENT) if statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                return Err(DestinationError::Dangling.into());
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("open")(errno).into()),
        }
        // `parent` and `file_name` ignore a trailing slash.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let name = path.file_name().ok_or(DestinationError::NoFolder)?;
        let opened = open_directory(above.unwrap_or(Path::new(".")), OFlags::RDONLY);
        let fd = opened.map_err(|errno| match errno {
            Errno::NOENT => DestinationError::NoFolder,
            errno => failed("open")(errno).into(),
        })?;
        let name = CString::new(name.as_bytes()).map_err(|_| failed("open")(Errno::INVAL))?;
        Ok(Self::New(fd, name))
    }

    /// Returns a directory on the destination's file system, for unnamed files.
    pub fn beside(&self) -> BorrowedFd<'_> {
        match self {
            Self::There(fd) | Self::New(fd, _) => fd.as_fd(),
        }
    }

    /// Returns the existing directory.
    pub fn existing(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::There(fd) => Some(fd.as_fd()),
            Self::New(..) => None,
        }
    }

    /// Creates the directory that receives the entries, or takes over the staging directory that an earlier run left
    /// for this URL.
    pub fn begin(self, url: &str) -> Result<TreeRoot, FetchError> {
        match self {
            Self::There(fd) => Ok(TreeRoot::There(fd)),
            Self::New(above, name) => {
                let remote =
                    Remote { url: url.to_owned(), validator: String::new(), weak: None, size: 0 };
                Ok(TreeRoot::Stage(Box::new(RemoteStage::make(above, name, &remote)?)))
            }
        }
    }
}

impl TreeRoot {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::There(fd) => fd.as_fd(),
            Self::Stage(stage) => stage.fd(),
        }
    }

    /// Returns `true` if the tree is built in a staging directory, invisible until it is complete.
    pub fn is_staged(&self) -> bool {
        matches!(self, Self::Stage(_))
    }

    /// Returns `true` if the directory was created by this run and is empty.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Stage(stage) if !stage.is_adopted())
    }

    /// Completes the tree, and sets these attributes on the directory. If `keeps_existing` is `true`, an existing
    /// directory keeps its own. `whole`: its file system, if one syncfs(2) call can sync it. Returns the number of
    /// extended attributes that the file system refused.
    pub fn publish(
        self,
        attributes: &EntryAttributes,
        keeps_existing: bool,
        whole: Option<&WholeSync>,
        fsync: Fsync,
    ) -> Result<u64, FetchError> {
        match self {
            Self::There(fd) => {
                let refused = if keeps_existing { 0 } else { attributes.give(fd.as_fd())? };
                match whole.filter(|_| fsync == Fsync::Always) {
                    Some(whole) => whole.sync()?,
                    None if fsync == Fsync::Always => io::sync(&fd).map_err(failed("fsync"))?,
                    None => {}
                }
                Ok(refused)
            }
            Self::Stage(stage) => {
                Ok(stage.publish(attributes, whole.filter(|_| fsync != Fsync::Never), fsync)?)
            }
        }
    }

    /// Keeps the staging directory for a later run, and returns its name.
    pub fn leave(self) -> Result<Option<CString>, FetchError> {
        let Self::Stage(stage) = self else { return Ok(None) };
        let name = stage.name().to_owned();
        Ok(stage.leave()?.then_some(name))
    }
}
