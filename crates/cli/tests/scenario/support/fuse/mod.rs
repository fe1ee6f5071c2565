//! File systems with configurable faults, served by this process.

use fuser::{BackgroundSession, Config, FileAttr, FileType, Filesystem, INodeNo, MountOption};
use std::{
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use super::{Scratch, skip};

pub mod disk;
pub mod shared;
pub mod sink;
pub mod source;

/// A mounted file system; unmounted when dropped.
pub struct Mounted {
    session: Option<BackgroundSession>,
    folder: PathBuf,
    scratch: Option<Scratch>,
}

impl Mounted {
    /// Mounts the file system on a new directory. Records a skip without FUSE.
    fn new(test: &str, sick: impl Filesystem, access: MountOption) -> Option<Self> {
        let scratch = Scratch::new();
        let folder = scratch.folder("sick");
        let mut mounted = Self::at(test, folder, sick, access)?;
        mounted.scratch = Some(scratch);
        Some(mounted)
    }

    /// Mounts the file system on an existing directory. Records a skip without FUSE.
    fn at(test: &str, folder: PathBuf, sick: impl Filesystem, access: MountOption) -> Option<Self> {
        let mut config = Config::default();
        config.mount_options = vec![access, MountOption::FSName("thalweg-tests".to_owned())];
        match fuser::spawn_mount(sick, &folder, &config) {
            Ok(session) => Some(Self { session: Some(session), folder, scratch: None }),
            Err(error) => {
                skip(test, &format!("no FUSE: {error}"));
                None
            }
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            drop(session.umount_and_join());
        }
    }
}

/// Returns the attributes of the root directory if `len` is `None`, otherwise of a file of that length.
fn attributes(ino: INodeNo, len: Option<u64>, perm: u16) -> FileAttr {
    FileAttr {
        ino,
        size: len.unwrap_or(0),
        blocks: len.unwrap_or(0).div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if len.is_some() { FileType::RegularFile } else { FileType::Directory },
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
