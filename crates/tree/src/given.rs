//! Attributes that copies get in place of those of their sources, and files that a copy skips by size or age.

use rustix::fs::{FileType, Stat};

use crate::identity::kind;

/// Owner, group and mode in place of those of the source (`--chown`, `--chmod`).
#[derive(Clone, Debug, Default)]
pub struct GivenAttributes {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Changes of the mode, in order.
    pub modes: Vec<ModeChange>,
}

/// A change of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// `Some(true)`: only directories. `Some(false)`: all entries except directories. `None`: all entries.
    pub directories: Option<bool>,
    /// Bits that are cleared first.
    pub clear: u32,
    /// Bits that are set after that.
    pub set: u32,
    /// Bits that are also set if the entry is a directory or any execute bit is set (`X`).
    pub set_if_executable: u32,
}

impl GivenAttributes {
    /// Changes the attributes of a source.
    pub(crate) fn apply(&self, stat: &mut Stat) {
        (stat.st_uid, stat.st_gid) = self.owner(stat.st_uid, stat.st_gid);
        stat.st_mode = stat.st_mode & !0o7777 | self.mode(kind(stat), stat.st_mode & 0o7777);
    }

    /// Returns the user and the group of a copy, in place of those of the source.
    pub fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        (self.uid.unwrap_or(uid), self.gid.unwrap_or(gid))
    }

    /// Returns the permission bits of a copy. `mode`: those of the source. Symbolic links keep theirs.
    pub fn mode(&self, kind: FileType, mut mode: u32) -> u32 {
        if kind == FileType::Symlink {
            return mode;
        }
        let is_directory = kind == FileType::Directory;
        let changes = self.modes.iter();
        for change in
            changes.filter(|change| change.directories.is_none_or(|only| only == is_directory))
        {
            let is_executable = is_directory || mode & 0o111 != 0;
            let more = if is_executable { change.set_if_executable } else { 0 };
            mode = mode & !change.clear | (change.set | more) & 0o7777;
        }
        mode
    }
}

/// Limits for the files of a copy. Files outside of these limits are skipped, and existing copies of them stay
/// unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Largest size, in bytes.
    pub largest: Option<u64>,
    /// Smallest size, in bytes.
    pub smallest: Option<u64>,
    /// Earliest modification time, in seconds since 1970.
    pub newer_than: Option<i64>,
}

impl FileLimits {
    /// Returns `true` if no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a regular file is copied. `mtime`: its modification time, in seconds since 1970.
    pub fn allow(&self, size: u64, mtime: i64) -> bool {
        self.largest.is_none_or(|most| size <= most)
            && self.smallest.is_none_or(|least| size >= least)
            && self.newer_than.is_none_or(|first| mtime >= first)
    }
}
