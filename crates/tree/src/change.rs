//! The changes that a sync makes, and how an existing entry differs from its source.

use rustix::fs::{FileType, Stat, StatFs};
use std::path::Path;
use thalweg_sys::Errno;

use crate::{identity::kind, times};

/// A change that a sync makes.
#[derive(Clone, Copy, Debug)]
pub struct SyncChange<'a> {
    /// The path below the destination; `.` is the destination itself.
    pub path: &'a Path,
    /// The change.
    pub action: ChangeAction,
    /// The type of the source, or of the deleted entry.
    pub kind: FileType,
    /// `true` if the entry is a hard link. Its source has several names, or an earlier snapshot has an equal file.
    pub is_linked: bool,
    /// The size of the source, for files with contents.
    pub size: u64,
    /// The differences that led to the change.
    pub differs: AttributeDifferences,
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// The entry did not exist.
    Create,
    /// The entry got new contents, or became an entry of another type.
    Replace,
    /// The name became a hard link to the copy of another name of its source.
    Link,
    /// Only attributes changed.
    Attributes,
    /// The entry does not exist in the source and was deleted.
    Delete,
}

impl ChangeAction {
    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Link => "link",
            Self::Attributes => "attributes",
            Self::Delete => "delete",
        }
    }
}

/// The properties in which an existing entry differs from its source.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeDifferences {
    /// The type of the entry.
    pub kind: bool,
    /// The bytes of a file that was read, the target of a symbolic link, or the number of a device.
    pub content: bool,
    /// The size.
    pub size: bool,
    /// The modification time.
    pub time: bool,
    /// The permission bits.
    pub mode: bool,
    /// The owner.
    pub owner: bool,
    /// The group.
    pub group: bool,
    /// The access control lists.
    pub acl: bool,
    /// The extended attributes.
    pub xattrs: bool,
}

impl AttributeDifferences {
    /// Compares two `stat` results, also in attributes that a copy cannot set. `fs`: the file system of `there`.
    pub(crate) fn between(
        source: &Stat,
        there: &Stat,
        fs: impl FnOnce() -> Result<StatFs, Errno>,
    ) -> Self {
        let is = kind(source);
        Self {
            kind: is != kind(there),
            size: is == FileType::RegularFile && source.st_size != there.st_size,
            time: !times::is_same(there, source, fs),
            // The mode of a symbolic link has no meaning.
            mode: is != FileType::Symlink && (source.st_mode ^ there.st_mode) & 0o7777 != 0,
            owner: source.st_uid != there.st_uid,
            group: source.st_gid != there.st_gid,
            ..Self::default()
        }
    }

    /// Returns `true` if there is a difference.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Returns the names of the differing properties.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.kind, "type"),
            (self.content, "content"),
            (self.size, "size"),
            (self.time, "mtime"),
            (self.mode, "mode"),
            (self.owner, "owner"),
            (self.group, "group"),
            (self.acl, "acl"),
            (self.xattrs, "xattrs"),
        ];
        all.into_iter().filter_map(|(differs, name)| differs.then_some(name)).collect()
    }
}

/// Number of entries by change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Entries that did not exist.
    pub created: u64,
    /// New entries that are links to files of an earlier snapshot.
    pub linked: u64,
    /// Entries that were replaced or linked, or got other attributes.
    pub changed: u64,
    /// Deleted entries.
    pub deleted: u64,
    /// Entries that are equal to their sources.
    pub unchanged: u64,
}

impl SyncCounts {
    /// Counts one change.
    pub(crate) fn count(&mut self, action: ChangeAction) {
        match action {
            ChangeAction::Create => self.created += 1,
            ChangeAction::Replace | ChangeAction::Link | ChangeAction::Attributes => {
                self.changed += 1;
            }
            ChangeAction::Delete => self.deleted += 1,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.created += other.created;
        self.linked += other.linked;
        self.changed += other.changed;
        self.deleted += other.deleted;
        self.unchanged += other.unchanged;
    }
}
