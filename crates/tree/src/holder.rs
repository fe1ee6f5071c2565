//! Reads and sets the attributes of an entry, through a descriptor or by its name.

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::{
    Errno,
    opened::{chmod_opened, set_times_opened},
    xattr::list_at,
};

/// An entry with attributes.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    /// An open file or directory.
    Fd(BorrowedFd<'a>),
    /// The entry of an `O_PATH` descriptor, which may be a symbolic link. A call by name could change another entry
    /// that a process put there.
    PathFd(BorrowedFd<'a>),
    /// An entry of an open directory. If `follows`, a symbolic link is followed, and attributes are only read.
    Entry { dir: BorrowedFd<'a>, name: &'a CStr, follows: bool },
}

/// Opens an entry, which may be a symbolic link, without access to its contents.
pub(crate) fn open_node(dir: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Returns a path to the file of an `O_PATH` descriptor. It leads to the file itself, even if that is a symbolic link.
fn path_of_fd(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Returns the path of an entry through /proc, for system calls that take a path only.
fn path_of(dir: BorrowedFd<'_>, name: &CStr) -> CString {
    let is_relative = dir.as_raw_fd() >= 0 && !name.to_bytes().starts_with(b"/");
    let before =
        if is_relative { format!("/proc/self/fd/{}/", dir.as_raw_fd()) } else { String::new() };
    CString::new([before.as_bytes(), name.to_bytes()].concat()).unwrap_or_default()
}

impl Holder<'_> {
    /// Returns `false` if the file system supports no extended attributes.
    pub fn may_have_any(&self) -> bool {
        !matches!(self.list(&mut []), Err(Errno::OPNOTSUPP | Errno::NOSYS))
    }

    /// Lists the names of the extended attributes.
    pub fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Self::Fd(fd) => fs::flistxattr(fd, buffer),
            Self::PathFd(fd) => fs::listxattr(&*path_of_fd(fd), buffer),
            Self::Entry { dir, name, follows } => match list_at(dir, name, follows, buffer) {
                Some(answer) => answer,
                None if follows => fs::listxattr(&*path_of(dir, name), buffer),
                None => fs::llistxattr(&*path_of(dir, name), buffer),
            },
        }
    }

    /// Reads an extended attribute.
    pub fn get(&self, attribute: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        match *self {
            Self::Fd(fd) => fs::fgetxattr(fd, attribute, buffer),
            Self::PathFd(fd) => fs::getxattr(&*path_of_fd(fd), attribute, buffer),
            Self::Entry { dir, name, follows: true } => {
                fs::getxattr(&*path_of(dir, name), attribute, buffer)
            }
            Self::Entry { dir, name, follows: false } => {
                fs::lgetxattr(&*path_of(dir, name), attribute, buffer)
            }
        }
    }

    /// Sets an extended attribute.
    pub fn set(&self, attribute: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match *self {
            Self::Fd(fd) => fs::fsetxattr(fd, attribute, value, flags),
            Self::PathFd(fd) => fs::setxattr(&*path_of_fd(fd), attribute, value, flags),
            Self::Entry { dir, name, .. } => {
                fs::lsetxattr(&*path_of(dir, name), attribute, value, flags)
            }
        }
    }

    /// Removes an extended attribute.
    pub fn remove(&self, attribute: &CStr) -> Result<(), Errno> {
        match *self {
            Self::Fd(fd) => fs::fremovexattr(fd, attribute),
            Self::PathFd(fd) => fs::removexattr(&*path_of_fd(fd), attribute),
            Self::Entry { dir, name, .. } => fs::lremovexattr(&*path_of(dir, name), attribute),
        }
    }

    /// Changes owner and group as far as user `me` may do so. If `me` is not root and may not change the owner, returns
    /// `Ok(false)`. For root, that is an error.
    pub fn own(&self, me: u32, uid: u32, gid: u32) -> Result<bool, CallFailed> {
        match self.chown(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL) if me != 0 => {
                // A user that cannot change the owner may still set a group of which it is a member.
                let _ = self.chown(None, Some(Gid::from_raw(gid)));
                Ok(false)
            }
            Err(errno) => {
                let call = if matches!(self, Self::Fd(_)) { "fchown" } else { "fchownat" };
                Err(failed(call)(errno))
            }
        }
    }

    fn chown(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        match *self {
            Self::Fd(fd) => fs::fchown(fd, uid, gid),
            Self::PathFd(fd) => fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
            Self::Entry { dir, name, .. } => {
                fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Returns the permission bits of an open entry.
    pub fn mode(&self) -> Option<u32> {
        let (Self::Fd(fd) | Self::PathFd(fd)) = self else { return None };
        Some(fs::fstat(fd).ok()?.st_mode & 0o7777)
    }

    /// Sets the permission bits of an open entry.
    pub fn chmod(&self, mode: u32) -> Result<(), CallFailed> {
        match self {
            Self::Fd(fd) => fs::fchmod(fd, Mode::from_raw_mode(mode)).map_err(failed("fchmod")),
            Self::PathFd(fd) => chmod_opened(fd, mode).map_err(failed("fchmodat2")),
            Self::Entry { .. } => Err(failed("fchmodat2")(Errno::OPNOTSUPP)),
        }
    }

    /// Sets access and modification time.
    pub fn set_times(&self, times: &Timestamps) -> Result<(), CallFailed> {
        let set = match *self {
            Self::Fd(fd) => fs::futimens(fd, times),
            Self::PathFd(fd) => set_times_opened(fd, times),
            Self::Entry { dir, name, .. } => {
                fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        set.map_err(failed("utimensat"))
    }
}
