//! Table of files with several names in the source. A worker copies the first name that it meets. Names that are met
//! during that copy are queued and block no thread. Names that are met later are linked to the copy. When all names of
//! a file were met, the table forgets the file.

use rustix::fs::{AtFlags, OFlags, Stat, statat};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
};
use thalweg_sys::Errno;

use crate::{
    CopyOptions,
    copy::{
        copy_entry::{CopyEntry, QueuedEntry},
        directory::Directory,
    },
    error::{Attempt, CopyFailure, at_sink},
    fs::beneath::{Beneath, FollowLinks},
    identity::Id,
    paths::DirectoryPaths,
    threads::locked,
};

/// The files with several names that are not complete yet.
#[derive(Debug)]
pub(crate) struct LinkTable {
    table: Mutex<HashMap<Id, LinkEntry>>,
    // `true` if symbolic links are followed. A walk may then meet more names of a file than its link count.
    keeps_all: bool,
}

#[derive(Debug)]
struct LinkEntry {
    // Number of names in the source that the walk has not met yet, according to the link count.
    left: u64,
    state: LinkState,
}

#[derive(Debug)]
enum LinkState {
    Making(Vec<QueuedEntry>),
    Made(Name),
}

/// A name in the destination.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    paths: Arc<DirectoryPaths<Directory>>,
    pub last: CString,
    // Identity of the copy. Another process may replace the file that has the name.
    id: Id,
}

/// The action for one name of a file.
pub(crate) enum LinkClaim {
    /// Copy the file, then call [`LinkTable::made`] or [`LinkTable::failed`].
    First,
    /// Link the name to this copy.
    Again(Name),
    /// Do nothing: the worker that copies the file links this name afterwards.
    Waits,
}

impl LinkTable {
    /// Creates an empty table.
    pub fn new(options: &CopyOptions) -> Self {
        Self { table: Mutex::default(), keeps_all: options.follows(true) }
    }

    /// Registers one name of a file and returns the action for it.
    pub fn claim(&self, entry: &CopyEntry<'_>, stat: &Stat) -> LinkClaim {
        let mut table = locked(&self.table);
        let id = Id::of(stat);
        let Some(record) = table.get_mut(&id) else {
            // The number of names is unknown. The start value leaves room to add waiting names without overflow.
            let left = if self.keeps_all { u64::MAX / 2 } else { stat.st_nlink.saturating_sub(1) };
            table.insert(id, LinkEntry { left, state: LinkState::Making(Vec::new()) });
            return LinkClaim::First;
        };
        record.left = record.left.saturating_sub(1);
        match &mut record.state {
            LinkState::Making(waiting) => {
                waiting.push(entry.queued());
                LinkClaim::Waits
            }
            LinkState::Made(name) => {
                let name = name.clone();
                if record.left == 0 {
                    table.remove(&id);
                }
                LinkClaim::Again(name)
            }
        }
    }

    /// Records that the first copy, `copy`, is complete. Returns the names that waited for it.
    pub fn made(&self, entry: &CopyEntry<'_>, stat: &Stat, copy: Id) -> Vec<QueuedEntry> {
        let mut table = locked(&self.table);
        let id = Id::of(stat);
        let Some(record) = table.get_mut(&id) else { return Vec::new() };
        let paths = Arc::clone(&entry.directory.paths);
        let name = Name { paths, last: entry.name.to_owned(), id: copy };
        let before = std::mem::replace(&mut record.state, LinkState::Made(name));
        // Each waiting name is claimed a second time. The claim then returns `Again`, because the state is `Made`.
        let waiting = if let LinkState::Making(waiting) = before { waiting } else { Vec::new() };
        record.left += waiting.len() as u64;
        if record.left == 0 {
            table.remove(&id);
        }
        waiting
    }

    /// Records that the first copy failed. Returns the names that waited for it; one of them becomes the first.
    pub fn failed(&self, stat: &Stat) -> Vec<QueuedEntry> {
        match locked(&self.table).remove(&Id::of(stat)) {
            Some(LinkEntry { state: LinkState::Making(waiting), .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// Expects one more name of a file: a link failed for lack of descriptors, and its retry claims the name again.
    pub fn claim_again(&self, stat: &Stat, copy: &Name) {
        let mut table = locked(&self.table);
        let made = || LinkEntry { left: 0, state: LinkState::Made(copy.clone()) };
        let record = table.entry(Id::of(stat)).or_insert_with(made);
        record.left = record.left.saturating_add(1);
    }

    /// Expects one more name of a file that has a copy. An unnecessary call is harmless: the table then keeps the file
    /// until the copy ends.
    pub fn expect_again(&self, stat: &Stat) {
        if let Some(record) = locked(&self.table).get_mut(&Id::of(stat)) {
            record.left = record.left.saturating_add(1);
        }
    }

    /// Removes a file because its name `lost` no longer leads to the copy. The next name that is met is copied.
    pub fn forget(&self, stat: &Stat, lost: &Name) {
        let mut table = locked(&self.table);
        let id = Id::of(stat);
        // Another worker may have removed the file, or replaced the lost copy, already.
        let is_lost =
            |entry: &LinkEntry| matches!(&entry.state, LinkState::Made(name) if name.id == lost.id);
        if table.get(&id).is_some_and(is_lost) {
            table.remove(&id);
        }
    }
}

/// Returns the identity of the file with this name, if it exists.
pub(crate) fn id_of(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<Option<Id>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Id::of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(at_sink("newfstatat")(errno)),
    }
}

impl Name {
    /// Returns `true` if `other` is a name of this copy.
    pub fn is_copy(&self, dir: BorrowedFd<'_>, other: &CStr) -> Attempt<bool> {
        Ok(id_of(dir, other)? == Some(self.id))
    }

    /// Returns the directory of this name. A closed directory is opened again from its nearest open ancestor.
    pub fn directory(&self) -> Attempt<Arc<OwnedFd>> {
        let alive =
            |paths: &DirectoryPaths<Directory>| paths.here.get().and_then(std::sync::Weak::upgrade);
        let mut names = Vec::new();
        let mut paths = &self.paths;
        let directory = loop {
            match alive(paths) {
                Some(directory) => break directory,
                None => names.push(paths.name()),
            }
            paths = paths.parent().ok_or(CopyFailure::Sink("openat", Errno::NOENT, 0))?;
        };
        let above = directory.open()?.ok_or(CopyFailure::Sink("openat", Errno::NOENT, 0))?;
        if names.is_empty() {
            return Ok(above);
        }
        let path: Vec<&[u8]> = names.into_iter().rev().map(CStr::to_bytes).collect();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = Beneath::new(&*above, FollowLinks::Never).open(&path.join(&b'/'), flags);
        Ok(Arc::new(below.map_err(at_sink("openat"))?))
    }
}
