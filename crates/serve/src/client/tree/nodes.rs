//! Creates the entries of a tree that have no content: symbolic links and special files.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode};
use thalweg_sys::Errno;
use thalweg_tree::install::{NewEntry, replace_by_node};

use super::{
    change::EntryChange,
    compare::compare_node,
    directories::TreeDirectory,
    entry::{ListedEntry, stays_inside},
    files::{InstallPolicy, OVER_DIRECTORY},
};
use crate::{
    client::FetchError,
    manifest::{ManifestKind, SpecialFile},
};

/// A link or special file that was created or replaced.
pub struct ChangedNode {
    pub change: EntryChange,
    /// Extended attributes that the file system refused.
    pub refused_xattrs: u64,
}

impl InstallPolicy<'_> {
    /// Creates a symbolic link or a special file, or replaces one that differs. Returns the change, or `None` if an
    /// equal entry existed.
    pub fn node(
        self,
        entry: &ListedEntry,
        directory: &TreeDirectory,
    ) -> Result<Option<ChangedNode>, FetchError> {
        let new = match &entry.kind {
            ManifestKind::Link(target) => {
                if !self.all_links && !stays_inside(entry.directory(), target) {
                    let why = "the symbolic link may point outside the directory";
                    return Err(FetchError::listed(why));
                }
                NewEntry::Symlink(target)
            }
            // The mode is private until the owner is set. The final mode is set afterwards.
            ManifestKind::Special(SpecialFile { kind, device }) => {
                NewEntry::Special { kind: *kind, mode: Mode::RUSR | Mode::WUSR, device: *device }
            }
            ManifestKind::File(_) | ManifestKind::Directory(_) => return Ok(None),
        };
        let (name, attributes) = (entry.name(), self.attributes(&entry.meta, &entry.xattrs));
        let there = if self.is_fresh { None } else { directory.look(&name)? };
        let fd = directory.fd.as_fd();
        let Some(there) = there else {
            if !new.create(fd, &name)? {
                return Err(self.of_new(new.call(), Errno::EXIST));
            }
            let refused_xattrs = attributes.give_to_node(fd, &name, &new)?;
            return Ok(Some(ChangedNode { change: EntryChange::created(), refused_xattrs }));
        };
        if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
            return Err(FetchError::listed(OVER_DIRECTORY));
        }
        let differs = compare_node(&there, &entry.kind, &attributes, directory, &name)?;
        if !differs.any() {
            return Ok(None);
        }
        // Replaces the entry instead of changing its attributes: another user may have renamed a third user's entry to
        // this name.
        let kept = self.kept(&entry.path);
        let refused_xattrs = replace_by_node(fd, &name, &new, &attributes, kept)?;
        Ok(Some(ChangedNode { change: EntryChange::of_node(differs), refused_xattrs }))
    }
}
