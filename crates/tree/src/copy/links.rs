//! The table of files that have several names in the source: the first name met is copied; those met
//! meanwhile wait for it without holding a thread; those met later are linked. A file whose names have all
//! been met is forgotten, so that the table holds no more than what is open.

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_sys::Errno;

use crate::{
    CopyOptions,
    copy::{
        copy_entry::{CopyEntry, Origin},
        directory::Directory,
    },
    error::{Attempt, Failure, at_sink},
    identity::Id,
    paths::Paths,
};

/// The files with several names that are on their way.
#[derive(Debug)]
pub(crate) struct Links {
    table: Mutex<HashMap<Id, Entry>>,
    // Links are followed: a file may be met under more names than it has.
    keeps_all: bool,
}

#[derive(Debug)]
struct Entry {
    // Names in the source that were not met yet, as far as the link count tells.
    left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Making(Vec<Waiting>),
    Made(Name),
}

/// A name in the destination.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    paths: Arc<Paths<Directory>>,
    pub last: CString,
    // The copy that got it: somebody may give it to another file.
    id: Id,
}

/// A name that waits for the first copy of its file.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub directory: Arc<Directory>,
    pub from: Origin,
    pub source: CString,
    pub name: CString,
}

/// What to do with one name of a file.
pub(crate) enum LinkClaim {
    /// Copy it, and then say so by [`Links::made`] or [`Links::failed`].
    First,
    /// Link it to this.
    Again(Name),
    /// Nothing: the thread that copies it will see to it.
    Waits,
}

impl Links {
    /// An empty table.
    pub fn new(options: &CopyOptions) -> Self {
        Self { table: Mutex::default(), keeps_all: options.follows(true) }
    }

    /// Books one name of a file.
    pub fn claim(&self, entry: &CopyEntry<'_>, stat: &Stat) -> LinkClaim {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(record) = table.get_mut(&id) else {
            // Half of what fits: those that wait are added.
            let left = if self.keeps_all { u64::MAX / 2 } else { stat.st_nlink.saturating_sub(1) };
            table.insert(id, Entry { left, state: State::Making(Vec::new()) });
            return LinkClaim::First;
        };
        record.left = record.left.saturating_sub(1);
        match &mut record.state {
            State::Making(waiting) => {
                entry.directory.expect_one_more();
                waiting.push(Waiting {
                    directory: Arc::clone(entry.directory),
                    from: entry.from.clone(),
                    source: entry.source.to_owned(),
                    name: entry.name.to_owned(),
                });
                LinkClaim::Waits
            }
            State::Made(name) => {
                let name = name.clone();
                if record.left == 0 {
                    table.remove(&id);
                }
                LinkClaim::Again(name)
            }
        }
    }

    /// The first copy, `copy`, is whole; returns the names that waited for it.
    pub fn made(&self, entry: &CopyEntry<'_>, stat: &Stat, copy: Id) -> Vec<Waiting> {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(record) = table.get_mut(&id) else { return Vec::new() };
        let paths = Arc::clone(&entry.directory.paths);
        let name = Name { paths, last: entry.name.to_owned(), id: copy };
        let before = std::mem::replace(&mut record.state, State::Made(name));
        // Those that waited will come again, and be met as made.
        let waiting = if let State::Making(waiting) = before { waiting } else { Vec::new() };
        record.left += waiting.len() as u64;
        if record.left == 0 {
            table.remove(&id);
        }
        waiting
    }

    /// The first copy failed; returns the names that waited for it, for one of them to be the first.
    pub fn failed(&self, stat: &Stat) -> Vec<Waiting> {
        match self.lock().remove(&Id::of(stat)) {
            Some(Entry { state: State::Making(waiting), .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// A name that was met was not linked after all, and may be met once more: for want of a descriptor it is tried
    /// again.
    pub fn claim_again(&self, stat: &Stat, copy: &Name) {
        let mut table = self.lock();
        let made = || Entry { left: 0, state: State::Made(copy.clone()) };
        let record = table.entry(Id::of(stat)).or_insert_with(made);
        record.left = record.left.saturating_add(1);
    }

    /// The name does not lead to the copy any more: the next to be met is the first again.
    pub fn forget(&self, stat: &Stat, lost: &Name) {
        let mut table = self.lock();
        let id = Id::of(stat);
        // Another worker may have found it out before.
        let is_lost =
            |entry: &Entry| matches!(&entry.state, State::Made(name) if name.id == lost.id);
        if table.get(&id).is_some_and(is_lost) {
            table.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has a name, if anything has it.
pub(crate) fn id_of(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<Option<Id>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Id::of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(at_sink("newfstatat")(errno)),
    }
}

impl Name {
    /// Whether `other` is a name of this copy too.
    pub fn is_copy(&self, dir: BorrowedFd<'_>, other: &CStr) -> Attempt<bool> {
        Ok(id_of(dir, other)? == Some(self.id))
    }

    /// The directory it is in: still open, or opened again from the nearest one that is.
    pub fn directory(&self) -> Attempt<Arc<OwnedFd>> {
        let alive = |paths: &Paths<Directory>| paths.here.get().and_then(std::sync::Weak::upgrade);
        let mut names = Vec::new();
        let mut paths = &self.paths;
        let directory = loop {
            match alive(paths) {
                Some(directory) => break directory,
                None => names.push(paths.name()),
            }
            paths = paths.parent().ok_or(Failure::Sink("openat", Errno::NOENT, 0))?;
        };
        let mut at = directory.open()?.ok_or(Failure::Sink("openat", Errno::NOENT, 0))?;
        for name in names.into_iter().rev() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = openat(&*at, name, flags, Mode::empty());
            at = Arc::new(below.map_err(at_sink("openat"))?);
        }
        Ok(at)
    }
}
