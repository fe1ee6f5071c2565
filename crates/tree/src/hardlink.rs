//! Files with several names in the source get several names in the destination.
//!
//! The first name met is copied; those met meanwhile wait for it without holding a thread; those
//! met later are linked. A file whose names have all been met is forgotten, so that the table
//! holds no more than what is open.

use rustix::fs::{AtFlags, Mode, OFlags, Stat, linkat, openat, statat};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_sys::{Errno, io};

use crate::{
    directory::Directory,
    error::{Attempt, Failure, at_sink},
    identity::Id,
    naming,
    place::{Leaf, Origin, Place},
    publish::unlink,
    queue::{Names, Task},
    worker::Worker,
};

/// The files with several names that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<Id, Entry>>);

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
    place: Arc<Place>,
    name: CString,
}

/// A name that waits for the first copy of its file.
#[derive(Debug)]
pub(crate) struct Waiting {
    directory: Arc<Directory>,
    from: Origin,
    source: CString,
    name: CString,
}

/// What to do with one name of a file.
pub(crate) enum Met {
    /// Copy it, and then say so by [`Links::made`] or [`Links::failed`].
    First,
    /// Link it to this.
    Again(Name),
    /// Nothing: whoever copies it will see to it.
    Waits,
}

impl Links {
    /// Books one name of a file.
    pub fn meet(&self, leaf: &Leaf<'_>, stat: &Stat) -> Met {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(entry) = table.get_mut(&id) else {
            let left = stat.st_nlink.saturating_sub(1);
            table.insert(id, Entry { left, state: State::Making(Vec::new()) });
            return Met::First;
        };
        entry.left = entry.left.saturating_sub(1);
        match &mut entry.state {
            State::Making(waiting) => {
                leaf.directory.expect_one_more();
                waiting.push(Waiting {
                    directory: Arc::clone(leaf.directory),
                    from: leaf.from.clone(),
                    source: leaf.source.to_owned(),
                    name: leaf.name.to_owned(),
                });
                Met::Waits
            }
            State::Made(name) => {
                let name = name.clone();
                if entry.left == 0 {
                    table.remove(&id);
                }
                Met::Again(name)
            }
        }
    }

    /// The first copy is whole; returns who waited for it.
    pub fn made(&self, leaf: &Leaf<'_>, stat: &Stat) -> Vec<Waiting> {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(entry) = table.get_mut(&id) else { return Vec::new() };
        let name = Name { place: Arc::clone(&leaf.directory.place), name: leaf.name.to_owned() };
        let before = std::mem::replace(&mut entry.state, State::Made(name));
        // Those that waited will come again, and be met as made.
        let waiting = if let State::Making(waiting) = before { waiting } else { Vec::new() };
        entry.left += waiting.len() as u64;
        if entry.left == 0 {
            table.remove(&id);
        }
        waiting
    }

    /// The first copy failed; returns who waited for it, for one of them to be the first.
    pub fn failed(&self, stat: &Stat) -> Vec<Waiting> {
        match self.lock().remove(&Id::of(stat)) {
            Some(Entry { state: State::Making(waiting), .. }) => waiting,
            _ => Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes `leaf` another name of what was copied to `name`.
pub(crate) fn link(dir: BorrowedFd<'_>, leaf: &Leaf<'_>, name: &Name) -> Attempt<()> {
    let (alive, opened) = name.directory().map_err(at_sink("openat"))?;
    let there = match (&alive, &opened) {
        (Some(directory), _) => directory.fd(),
        (None, Some(fd)) => Some(fd.as_fd()),
        (None, None) => None,
    };
    let Some(there) = there else { return Ok(()) };
    let to = |new: &CStr| linkat(there, &*name.name, dir, new, AtFlags::empty());
    match to(leaf.name) {
        Err(Errno::EXIST) => {
            let look = |dir: BorrowedFd<'_>, name: &CStr| {
                statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Id::of(&stat))
            };
            if look(there, &name.name).is_ok_and(|id| look(dir, leaf.name) == Ok(id)) {
                return Ok(());
            }
            let temporary = naming::unique(leaf.name);
            to(&temporary).map_err(at_sink("linkat"))?;
            io::rename(dir, &*temporary, dir, leaf.name, false).map_err(|errno| {
                let _ = unlink(dir, &temporary);
                Failure::Sink("renameat2", errno, 0)
            })
        }
        answer => answer.map_err(at_sink("linkat")),
    }
}

impl Name {
    /// The directory it is in: still open, or opened again from the nearest one that is.
    fn directory(&self) -> Result<(Option<Arc<Directory>>, Option<OwnedFd>), Errno> {
        let alive = |place: &Place| place.here.get().and_then(std::sync::Weak::upgrade);
        let mut names = Vec::new();
        let mut place = &self.place;
        let directory = loop {
            match alive(place) {
                Some(directory) => break directory,
                None => names.push(place.name()),
            }
            place = place.parent().ok_or(Errno::NOENT)?;
        };
        let mut opened: Option<OwnedFd> = None;
        for name in names.into_iter().rev() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let at = match &opened {
                Some(fd) => fd.as_fd(),
                None => directory.fd().ok_or(Errno::NOENT)?,
            };
            opened = Some(openat(at, name, flags, Mode::empty())?);
        }
        Ok(if opened.is_some() { (None, opened) } else { (Some(directory), None) })
    }
}

impl Worker<'_> {
    /// Sends those that waited for a copy through the queue again.
    pub fn wake(&self, waiting: Vec<Waiting>) {
        for Waiting { directory, from, source, name } in waiting {
            self.run.queue.push(match from {
                Origin::Caller => Task::Named { directory, source, name },
                Origin::Listed(_) => {
                    let mut names = Names::default();
                    names.push(0, &name);
                    Task::Batch { directory, from, names }
                }
            });
        }
    }
}
