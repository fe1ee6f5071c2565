//! Lists the entries of the destination that the source does not have. Changes nothing.
//!
//! The plan contains every entry to delete, with its inode number. An entry that appears later is never deleted, even
//! if it has the name of an entry in the plan.

use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, makedev, statat, statx};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::listing::{SourceListing, SourceNames};
use crate::{
    DirectoryCensus, Error, Events, Filter, KeptEntries, Refusal,
    error::at_path,
    fs::{
        beneath::Beneath,
        list::{DIRECTORY, each_entry, listing_buffer, type_of},
    },
    identity::Id,
    names::{STATE_FILE, os_bytes},
};
use thalweg_core::{Cancelled, atomic_file::name::is_reserved};

/// The rules of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Delete also entries that the filter excludes; otherwise they are protected.
    pub excluded: bool,
    /// The largest number of entries to delete. `None` allows half of the entries of the destination, or all of them if
    /// it has at most 100.
    pub most: Option<u64>,
    /// Delete even if there is a reason to refuse the deletion.
    pub force: bool,
    /// Report what would be deleted, and delete nothing.
    pub dry_run: bool,
    /// Bring the deletions to stable storage before the call returns.
    pub fsync: bool,
    /// The filter of the copy.
    pub filter: Option<Arc<dyn Filter>>,
    /// `true` if the sources are entries of the destination.
    pub has_entries: bool,
    /// `true` to delete nothing on other file systems than that of the destination.
    pub one_file_system: bool,
    /// The directory that keeps deleted entries. It may lie in the destination.
    pub kept: Option<Arc<KeptEntries>>,
}

/// An entry to delete.
#[derive(Debug)]
pub(super) struct DoomedEntry {
    /// Index of its directory in [`DeletePlan::directories`].
    pub parent: usize,
    pub name: CString,
    pub kind: FileType,
    pub inode: u64,
}

/// A directory with entries to delete.
#[derive(Debug)]
pub(super) struct PlannedDirectory {
    /// The path below the destination.
    pub path: Vec<u8>,
    /// Major and minor device number, and inode number.
    pub id: PlannedId,
    /// `true` if the directory stays, because at least one of its entries stays.
    pub keeps_some: bool,
    /// `true` if the source has this directory too.
    pub is_common: bool,
}

/// The identity of a directory, as statx(2) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedId {
    pub device: (u32, u32),
    pub inode: u64,
    pub is_mount: bool,
}

impl PlannedId {
    /// Examines an open directory.
    pub fn of(fd: &OwnedFd) -> Result<Self, thalweg_sys::Errno> {
        let found = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
        let is_mount = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok(Self { device, inode: found.stx_ino, is_mount })
    }
}

/// The entries to delete, each after its contents.
#[derive(Debug, Default)]
pub(super) struct DeletePlan {
    pub doomed: Vec<DoomedEntry>,
    pub directories: Vec<PlannedDirectory>,
    /// Entries of the destination that are not protected.
    pub entries: u64,
    /// The directories of the source that were listed.
    pub census: DirectoryCensus,
    /// `true` if the source has no entries, not even excluded ones.
    pub is_source_empty: bool,
    /// Errors for directories of the source that could not be listed. Nothing below them is deleted.
    pub unlisted: Vec<Error>,
    /// Errors in the destination.
    pub errors: Vec<Error>,
    /// The path of the source, if the source is inside the destination.
    pub contains_source: Option<PathBuf>,
}

/// An entry of a directory of the destination.
struct DestinationName {
    name: CString,
    kind: FileType,
    inode: u64,
}

/// A task of the planner.
enum PlanStep {
    /// A directory that exists on both sides.
    Merge(Vec<u8>),
    /// A directory that the source does not have. Its contents are planned before the directory itself.
    Enter {
        path: Vec<u8>,
        parent: usize,
        entry: DestinationName,
    },
    Leave {
        own: usize,
        parent: usize,
        entry: DestinationName,
    },
}

/// Makes the plan.
pub(super) struct DeletePlanner<'p> {
    pub beneath: &'p Beneath<OwnedFd>,
    pub destination: &'p Path,
    pub source: &'p dyn SourceNames,
    pub options: &'p DeleteOptions,
    pub events: &'p dyn Events,
    steps: Vec<PlanStep>,
    plan: DeletePlan,
}

impl<'p> DeletePlanner<'p> {
    pub fn new(
        beneath: &'p Beneath<OwnedFd>,
        destination: &'p Path,
        source: &'p dyn SourceNames,
        options: &'p DeleteOptions,
        events: &'p dyn Events,
    ) -> Self {
        let steps = vec![PlanStep::Merge(Vec::new())];
        Self { beneath, destination, source, options, events, steps, plan: DeletePlan::default() }
    }

    /// Walks through the destination.
    pub fn plan(mut self) -> Result<DeletePlan, Cancelled> {
        while let Some(step) = self.steps.pop() {
            self.events.go_on()?;
            match step {
                PlanStep::Merge(path) => self.merge(path),
                PlanStep::Enter { path, parent, entry } => self.enter(path, parent, entry),
                PlanStep::Leave { own, parent, entry } => self.leave(own, parent, entry),
            }
        }
        Ok(self.plan)
    }

    /// Compares the names of one directory on both sides.
    fn merge(&mut self, path: Vec<u8>) {
        let Some((fd, id, entries)) = self.open_and_list(&path) else { return };
        let (major, minor) = id.device;
        if self.source.contains(makedev(major, minor), id.inode) {
            self.plan.contains_source.get_or_insert(self.shown(&path));
            return;
        }
        if self.is_kept(id) {
            return;
        }
        let mut listing = match self.source.list(&path) {
            Ok(listing) => listing,
            Err(error) => return self.plan.unlisted.push(error),
        };
        let top = self.plan.directories.first().map_or(id.device, |top| top.id.device);
        listing.keeps_others |= self.options.one_file_system && id.device != top;
        if let Some(device) = listing.device {
            self.plan.census.note(device);
        }
        let has_others = listing.keeps_others || listing.has_excluded;
        let is_empty = listing.names.is_empty() && !has_others;
        self.plan.is_source_empty |= path.is_empty() && is_empty;
        let own = self.plan.directories.len();
        let directory = PlannedDirectory { path, id, keeps_some: true, is_common: true };
        self.plan.directories.push(directory);
        let folded = folded(&fd, &listing, &entries);
        drop(fd);
        self.judge(own, &listing, entries, &folded);
    }

    /// Decides about each entry of a directory that exists on both sides. `folded`: see the function [`folded`].
    fn judge(
        &mut self,
        own: usize,
        listing: &SourceListing,
        entries: Vec<DestinationName>,
        folded: &HashMap<u64, CString>,
    ) {
        let mut later = Vec::new();
        for entry in entries {
            let path = self.below(own, &entry.name);
            let is_directory = entry.kind == FileType::Directory;
            let is_own = *entry.name == *STATE_FILE || is_reserved(&entry.name);
            let is_excluded = self.is_excluded(&path, is_directory);
            if is_own || is_excluded && !self.options.excluded {
                continue;
            }
            self.plan.entries += 1;
            let known = listing.names.get(entry.name.to_bytes());
            let other = folded.get(&entry.inode).filter(|_| known.is_none());
            let path = other.map_or(path, |name| self.below(own, name));
            let known = known.or_else(|| listing.names.get(other?.to_bytes()));
            match known {
                Some(is_source_directory) if !is_excluded => {
                    match (is_directory, is_source_directory) {
                        (true, true) => later.push(PlanStep::Merge(path)),
                        // A file of the source replaces this directory, so its contents are deleted.
                        (true, false) => later.push(PlanStep::Enter { path, parent: own, entry }),
                        (false, _) => {}
                    }
                }
                _ if listing.keeps_others && !is_excluded => {}
                _ if is_directory => later.push(PlanStep::Enter { path, parent: own, entry }),
                _ => self.doom(own, entry),
            }
        }
        self.steps.extend(later.into_iter().rev());
    }

    /// Plans the removal of the contents of a directory that the source does not have.
    fn enter(&mut self, path: Vec<u8>, parent: usize, entry: DestinationName) {
        let Some((_, id, entries)) = self.open_and_list(&path) else {
            return self.keep(parent);
        };
        let own = self.plan.directories.len();
        if self.is_kept(id) {
            return self.keep(parent);
        }
        if id.is_mount {
            let reason = Refusal::MountPoint;
            self.plan.errors.push(Error::Refused { path: self.shown(&path), reason });
            return self.keep(parent);
        }
        let directory = PlannedDirectory { path, id, keeps_some: false, is_common: false };
        self.plan.directories.push(directory);
        self.steps.push(PlanStep::Leave { own, parent, entry });
        let mut later = Vec::new();
        for entry in entries {
            let path = self.below(own, &entry.name);
            let is_directory = entry.kind == FileType::Directory;
            if !self.options.excluded && self.is_excluded(&path, is_directory) {
                self.plan.directories[own].keeps_some = true;
                continue;
            }
            self.plan.entries += 1;
            if is_directory {
                later.push(PlanStep::Enter { path, parent: own, entry });
            } else {
                self.doom(own, entry);
            }
        }
        self.steps.extend(later.into_iter().rev());
    }

    /// Plans the removal of a directory itself, if nothing in it stays.
    fn leave(&mut self, own: usize, parent: usize, entry: DestinationName) {
        if self.plan.directories[own].keeps_some {
            self.keep(parent);
        } else {
            self.doom(parent, entry);
        }
    }

    fn keep(&mut self, directory: usize) {
        self.plan.directories[directory].keeps_some = true;
    }

    fn doom(&mut self, parent: usize, entry: DestinationName) {
        let DestinationName { name, kind, inode } = entry;
        self.plan.doomed.push(DoomedEntry { parent, name, kind, inode });
    }

    /// Opens and lists a directory of the destination, in the order of names. Records an error and returns `None` if
    /// that fails.
    fn open_and_list(&mut self, path: &[u8]) -> Option<(OwnedFd, PlannedId, Vec<DestinationName>)> {
        let mut entries = Vec::new();
        let opened = self.beneath.open(path, DIRECTORY).map_err(|errno| ("openat2", errno));
        let listed = opened.and_then(|fd| {
            let id = PlannedId::of(&fd).map_err(|errno| ("statx", errno))?;
            let end = each_entry(&fd, &mut listing_buffer(), |entry| {
                let name = entry.file_name();
                let kind = type_of(&fd, name, entry.file_type(), false);
                let kind = kind.unwrap_or(FileType::Unknown);
                entries.push(DestinationName { name: name.to_owned(), kind, inode: entry.ino() });
                true
            });
            end.map_err(|errno| ("getdents64", errno))?;
            Ok((fd, id))
        });
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        match listed {
            Ok((fd, id)) => Some((fd, id, entries)),
            Err((call, errno)) => {
                self.plan.errors.push(at_path(&self.shown(path), call)(errno));
                None
            }
        }
    }

    /// Returns `true` for the directory of kept entries.
    fn is_kept(&self, id: PlannedId) -> bool {
        let id = Id { dev: makedev(id.device.0, id.device.1), ino: id.inode };
        self.options.kept.as_ref().is_some_and(|kept| kept.is(id))
    }

    fn below(&self, directory: usize, name: &CStr) -> Vec<u8> {
        below(&self.plan.directories[directory].path, name)
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.destination.join(os_bytes(path))
    }

    fn is_excluded(&self, path: &[u8], is_directory: bool) -> bool {
        let Some(filter) = &self.options.filter else { return false };
        // The filter expects a path relative to the source that the caller named.
        let path = match path.iter().position(|byte| *byte == b'/') {
            _ if !self.options.has_entries => path,
            Some(cut) => &path[cut + 1..],
            None => return false,
        };
        filter.leaves_out(Path::new(os_bytes(path)), is_directory)
    }
}

/// On file systems that ignore case, finds the names of the source that lead to a destination entry with another
/// spelling. The key is the inode number of that entry.
fn folded(
    fd: &OwnedFd,
    listing: &SourceListing,
    entries: &[DestinationName],
) -> HashMap<u64, CString> {
    let is_listed =
        |name: &[u8]| entries.binary_search_by(|entry| entry.name.to_bytes().cmp(name)).is_ok();
    let missing = listing.names.keys().filter(|name| !is_listed(name));
    let names = missing.filter_map(|name| CString::new(&**name).ok());
    let found = names.filter_map(|name| {
        let stat = statat(fd, &*name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_ino, name))
    });
    found.collect()
}

/// Returns the path of an entry.
pub(super) fn below(directory: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = directory.to_owned();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    path
}
