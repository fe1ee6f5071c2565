//! Where a tree goes: a folder that is there, or one that will be when all is in.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use thalweg_core::atomic_file::{DestinationError, Fsync, failed};
use thalweg_sys::{Errno, io};
use thalweg_tree::{
    foreign::{Attributes, Stage, WholeSync},
    journal::Remote,
};

use crate::client::Error;

/// Where a tree goes.
pub enum Place {
    /// Into this folder, which is there.
    There(OwnedFd),
    /// It will be a folder of this name in that one.
    New(OwnedFd, CString),
}

/// The folder that is filled.
pub enum Root {
    There(OwnedFd),
    Stage(Box<Stage>),
}

impl Place {
    /// What this path leads to.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => return Ok(Self::There(fd)),
            Err(Errno::NOENT) if statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                return Err(DestinationError::Dangling.into());
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("open")(errno).into()),
        }
        // With a slash behind it, it is the same folder.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let name = path.file_name().ok_or(DestinationError::NoFolder)?;
        let opened = openat(CWD, above.unwrap_or(Path::new(".")), flags, Mode::empty());
        let fd = opened.map_err(|errno| match errno {
            Errno::NOENT => DestinationError::NoFolder,
            errno => failed("open")(errno).into(),
        })?;
        let name = CString::new(name.as_bytes()).map_err(|_| failed("open")(Errno::INVAL))?;
        Ok(Self::New(fd, name))
    }

    /// A folder of the same file system, for what has no name.
    pub fn beside(&self) -> BorrowedFd<'_> {
        match self {
            Self::There(fd) | Self::New(fd, _) => fd.as_fd(),
        }
    }

    /// Makes the folder that is filled, or takes over what an earlier run left of this URL.
    pub fn begin(self, url: &str) -> Result<Root, Error> {
        match self {
            Self::There(fd) => Ok(Root::There(fd)),
            Self::New(above, name) => {
                let remote =
                    Remote { url: url.to_owned(), validator: String::new(), weak: None, size: 0 };
                Ok(Root::Stage(Box::new(Stage::make(above, name, &remote)?)))
            }
        }
    }
}

impl Root {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::There(fd) => fd.as_fd(),
            Self::Stage(stage) => stage.fd(),
        }
    }

    /// Nobody sees it before all is in.
    pub fn is_staged(&self) -> bool {
        matches!(self, Self::Stage(_))
    }

    /// Something may be in it.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Stage(stage) if !stage.is_adopted())
    }

    /// All is in it. `whole`: its file system, if one call syncs it.
    pub fn publish(
        self,
        attributes: &Attributes,
        whole: Option<&WholeSync>,
        fsync: Fsync,
    ) -> Result<(), Error> {
        match self {
            Self::There(fd) => {
                attributes.give(fd.as_fd())?;
                match whole.filter(|_| fsync == Fsync::Always) {
                    Some(whole) => whole.sync()?,
                    None if fsync == Fsync::Always => io::sync(&fd).map_err(failed("fsync"))?,
                    None => {}
                }
            }
            Self::Stage(stage) => {
                stage.publish(attributes, whole.filter(|_| fsync != Fsync::Never), fsync)?;
            }
        }
        Ok(())
    }

    /// Leaves it to a later run, under the name that is returned.
    pub fn leave(self) -> Result<Option<CString>, Error> {
        let Self::Stage(stage) = self else { return Ok(None) };
        let name = stage.name().to_owned();
        Ok(stage.leave()?.then_some(name))
    }
}
