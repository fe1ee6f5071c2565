//! Compares the attributes that a copy can preserve.

use rustix::fs::{FileType, Mode, OFlags, Stat, StatFs, fstatfs, openat};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};
use thalweg_sys::Errno;

use super::run::SideFailure;
use crate::{
    Preserve,
    error::CopyFailure,
    identity::kind,
    times,
    xattrs::{Holder, SourceXattrs},
};

/// An entry with attributes.
pub(crate) enum Bearer<'a> {
    /// An open file.
    Fd(BorrowedFd<'a>),
    /// A name in a directory. Symbolic links are not followed.
    Name((BorrowedFd<'a>, &'a CStr)),
}

impl Bearer<'_> {
    fn file_system(&self) -> Result<StatFs, Errno> {
        match self {
            Self::Fd(fd) | Self::Name((fd, _)) => fstatfs(fd),
        }
    }
}

/// Returns the names of the attributes that differ.
pub(crate) fn differing(
    stats: &[Stat; 2],
    bearers: [Bearer<'_>; 2],
) -> Result<Vec<&'static str>, SideFailure> {
    let [source, sink] = stats;
    let mut differing = Vec::new();
    // The mode of a symbolic link has no meaning.
    let has_mode = kind(source) != FileType::Symlink;
    if has_mode && (source.st_mode ^ sink.st_mode) & 0o7777 != 0 {
        differing.push("mode");
    }
    if source.st_uid != sink.st_uid {
        differing.push("owner");
    }
    if source.st_gid != sink.st_gid {
        differing.push("group");
    }
    let [ours, theirs] = bearers;
    if !times::is_same(sink, source, || theirs.file_system()) {
        differing.push("modification time");
    }
    if taken(&ours, 0)? != taken(&theirs, 1)? {
        differing.push("extended attributes");
    }
    Ok(differing)
}

/// Returns extended attributes and ACLs, sorted by name.
pub(crate) fn taken(bearer: &Bearer<'_>, side: usize) -> Result<SourceXattrs, SideFailure> {
    let all = Preserve::all();
    let taken = match bearer {
        Bearer::Fd(fd) => SourceXattrs::from(&Holder::Fd(*fd), all),
        Bearer::Name((dir, name)) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(dir, *name, flags, Mode::empty());
            let fd = fd.map_err(|errno| (side, "openat", errno))?;
            SourceXattrs::from(&Holder::of_path_fd(fd.as_fd()), all)
        }
    };
    match taken {
        Ok(taken) => Ok(taken.sorted()),
        // Without /proc the attributes of symbolic links and devices cannot be accessed.
        Err(CopyFailure::Source(_, Errno::NOENT)) => Ok(SourceXattrs::default()),
        Err(CopyFailure::Source(call, errno)) => Err((side, call, errno)),
        Err(_) => Ok(SourceXattrs::default()),
    }
}
