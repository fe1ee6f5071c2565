//! The existing entry that has the name of a copy.

use rustix::fs::{FileType, Stat};
use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

use crate::{
    AttributeDifferences, Backup, Becomes, CopyOptions, Skip, copy::name_at::NameAt, identity::kind,
};

/// The decision for the name of a copy.
pub(crate) enum DestinationVerdict {
    /// The name is free.
    New,
    /// The name is a symbolic link to this free name, and the copy is created there.
    NewBehindLink(SymlinkTarget),
    /// The copy replaces this entry.
    Replace(Existing),
    /// The copy is skipped because this entry exists.
    Skip(Skip, Existing),
}

/// The final target of a symbolic link.
pub(crate) struct SymlinkTarget {
    pub(super) dir: OwnedFd,
    pub(super) name: CString,
}

impl SymlinkTarget {
    /// Returns the directory and the name of the target.
    pub fn name_at(&self) -> NameAt<'_> {
        NameAt { dir: self.dir.as_fd(), name: &self.name }
    }
}

/// The destination of one file: a new file, or an existing one that is replaced.
#[derive(Default)]
pub(crate) struct FileDestination {
    /// The file that is replaced.
    pub existing: Option<Existing>,
    /// The target of a dangling symbolic link, if the copy is created there.
    link_target: Option<SymlinkTarget>,
}

impl FileDestination {
    pub fn of(verdict: DestinationVerdict) -> Self {
        match verdict {
            DestinationVerdict::Replace(existing) => {
                Self { existing: Some(existing), link_target: None }
            }
            DestinationVerdict::NewBehindLink(target) => {
                Self { existing: None, link_target: Some(target) }
            }
            DestinationVerdict::New | DestinationVerdict::Skip(..) => Self::default(),
        }
    }

    /// Returns the name that the copy gets. `here`: the name of the entry itself.
    pub fn name_at<'a>(&'a self, here: NameAt<'a>) -> NameAt<'a> {
        let free = self.link_target.as_ref().map_or(here, SymlinkTarget::name_at);
        self.existing.as_ref().map_or(free, |existing| existing.name_at(here))
    }

    /// Returns `true` if the destination is reached through a symbolic link, possibly in another directory.
    pub fn is_elsewhere(&self) -> bool {
        self.link_target.is_some() || self.existing.as_ref().is_some_and(Existing::is_behind_link)
    }
}

/// An existing entry that is replaced.
pub(crate) struct Existing {
    /// The attributes of the entry, or of its target if symbolic links are followed.
    pub stat: Stat,
    // The location of the entry, if a symbolic link led to it.
    pub(super) through: Option<SymlinkTarget>,
    /// `true` if a regular file keeps its inode, because no other file could be renamed over it.
    pub keeps_inode: bool,
    /// `true` if the entry is removed, and the copy inherits nothing from it.
    pub is_removed: bool,
    /// `true` if the file must be compared with its source before it may be skipped. Either the sync compares bytes
    /// (`--checksum`), or there is no evidence that the data of an earlier run is intact.
    pub is_doubted: bool,
    /// The attributes in which the file differs from its source, if its contents are equal, and it is replaced together
    /// with all its names. A sync reports this as a change of attributes.
    pub renewed: Option<AttributeDifferences>,
}

impl Existing {
    /// Returns the location of the entry. Its replacement is created in this directory.
    pub fn name_at<'a>(&'a self, here: NameAt<'a>) -> NameAt<'a> {
        self.through.as_ref().map_or(here, SymlinkTarget::name_at)
    }

    /// Returns a copy of an entry that was found under the name itself; `None` if a symbolic link led to it.
    pub fn in_place(&self) -> Option<Self> {
        let Self { stat, keeps_inode, is_removed, is_doubted, renewed, .. } = *self;
        let is_here = self.through.is_none();
        is_here.then_some(Self {
            stat,
            through: None,
            keeps_inode,
            is_removed,
            is_doubted,
            renewed,
        })
    }

    /// Returns `true` if a symbolic link led to the entry, possibly in another directory.
    pub fn is_behind_link(&self) -> bool {
        self.through.is_some()
    }

    /// Returns `true` for devices, pipes and sockets: they are written to and never replaced by a file.
    pub fn is_special(&self) -> bool {
        kind(&self.stat) != FileType::RegularFile && !self.is_taken_away()
    }

    /// Returns `true` if the bytes are written into the existing entry, and not into a new file that replaces it.
    pub fn is_written_into(&self, options: &CopyOptions) -> bool {
        self.is_special() || self.keeps_inode || (options.inplace && !self.is_taken_away())
    }

    /// Returns `true` if a change in place may also change files outside of the destination: the file has other names,
    /// and the caller did not request to write into it.
    pub fn has_other_names(&self, options: &CopyOptions) -> bool {
        self.stat.st_nlink > 1 && !self.is_written_into(options)
    }

    /// Returns `true` if bytes written to it can be read back.
    pub fn can_be_read_again(&self) -> bool {
        !self.is_special() || kind(&self.stat) == FileType::BlockDevice
    }

    /// Returns `true` if a copy of attributes alone leaves the entry in place.
    pub fn keeps_contents(&self, options: &CopyOptions) -> bool {
        !self.is_taken_away() && options.backup == Backup::None
    }

    /// Returns `true` if the copy inherits nothing from the entry. Either the entry is a symbolic link that is not
    /// followed, or it is removed first ([`Self::is_removed`]).
    pub fn is_taken_away(&self) -> bool {
        self.is_removed || self.is_link()
    }

    /// Returns `true` if GNU `cp` unlinks this destination before it creates the copy of `source`, and reports that
    /// with `-v`.
    pub fn is_unlinked_by_cp(&self, options: &CopyOptions, source: &Stat, is_named: bool) -> bool {
        let has_names = options.preserve.links && self.stat.st_nlink > 1;
        let is_node = kind(source) != FileType::RegularFile && !options.follows(is_named);
        let makes_new = options.becomes == Becomes::Copy && !options.attributes_only;
        options.backup == Backup::None && (self.is_removed || (makes_new && (has_names || is_node)))
    }

    /// Returns `true` if the entry is a symbolic link that was not followed.
    fn is_link(&self) -> bool {
        kind(&self.stat) == FileType::Symlink
    }
}
