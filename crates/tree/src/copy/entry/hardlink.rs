//! Files with several names in the source get several names in the destination.
//!
//! The first name met is copied; those met meanwhile wait for it without holding a thread; those
//! met later are linked. A file whose names have all been met is forgotten, so that the table
//! holds no more than what is open.

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_core::atomic_file::name::unique;
use thalweg_sys::{Errno, io};

use crate::{
    CopyOptions, Event, Refusal, Skip,
    copy::{
        dest::{
            backup::set_aside,
            publish::{Spot, ignore, rename, unlink},
        },
        directory::Directory,
        leaf::{Leaf, Origin},
        task::Task,
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink},
    identity::{Id, mtime},
    paths::Paths,
    queue::Names,
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
    last: CString,
    // The copy that got it: somebody may give it to another file.
    id: Id,
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

/// What became of a name that an earlier run, or somebody else, had made, and that is not copied again.
pub(crate) enum LeftName {
    /// It stays as it is, and is what others are linked to: say so by [`Links::made`] or [`Links::failed`].
    First,
    /// It stays as it is.
    Stays,
    /// It is a link to the copy of another name now.
    Linked,
    /// It waits for that copy.
    Waits,
}

impl Links {
    /// An empty table.
    pub fn new(options: &CopyOptions) -> Self {
        Self { table: Mutex::default(), keeps_all: options.follows(true) }
    }

    /// Books one name of a file.
    pub fn meet(&self, leaf: &Leaf<'_>, stat: &Stat) -> Met {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(entry) = table.get_mut(&id) else {
            // Half of what fits: those that wait are added.
            let left = if self.keeps_all { u64::MAX / 2 } else { stat.st_nlink.saturating_sub(1) };
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

    /// The first copy, `copy`, is whole; returns who waited for it.
    pub fn made(&self, leaf: &Leaf<'_>, stat: &Stat, copy: Id) -> Vec<Waiting> {
        let mut table = self.lock();
        let id = Id::of(stat);
        let Some(entry) = table.get_mut(&id) else { return Vec::new() };
        let paths = Arc::clone(&leaf.directory.paths);
        let name = Name { paths, last: leaf.name.to_owned(), id: copy };
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

    /// A name that was met was not linked after all, and may be met once more: for want of a descriptor it is tried
    /// again.
    pub fn meet_again(&self, stat: &Stat, copy: &Name) {
        let mut table = self.lock();
        let made = || Entry { left: 0, state: State::Made(copy.clone()) };
        let entry = table.entry(Id::of(stat)).or_insert_with(made);
        entry.left = entry.left.saturating_add(1);
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

/// What became of a name that was to be linked.
enum Linked {
    /// It is another name of the copy; that of the backup.
    Done(Option<CString>),
    /// Nothing may be replaced, and somebody else was faster.
    Skipped,
    /// What had been copied has lost its name to somebody else's file.
    Lost,
    /// Existing are no hard links here, or no more of this file.
    Refused(Errno),
}

/// What became of one more name of a file.
pub(crate) enum Named {
    /// It is there, or was left as it was.
    Done,
    /// The copy it was to be linked to has lost its name: another one has to be made.
    Lost,
    /// It has to be a copy of its own.
    Refused,
}

/// Whether a file system, or a filter of system calls, has no hard links, or no more of them.
pub(crate) fn has_no_links(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK | Errno::XDEV
    )
}

/// Makes `leaf` another name of what was copied to `name`.
fn link(
    options: &CopyOptions,
    leaf: &Leaf<'_>,
    (dir, stat): (BorrowedFd<'_>, &Stat),
    name: &Name,
) -> Attempt<Linked> {
    let there = match name.directory() {
        Err(Failure::Sink(_, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE, _)) => {
            return Ok(Linked::Lost);
        }
        answer => answer?,
    };
    let is_copy = |new: &CStr| name.is_copy(dir, new);
    // Where others can see it, it gets its name when it is known to be the copy.
    let is_hidden = leaf.directory.is_fresh;
    if !is_hidden && is_copy(leaf.name)? {
        return Ok(Linked::Done(None));
    }
    let new = if is_hidden { leaf.name.to_owned() } else { unique(leaf.name) };
    match io::link(there.as_fd(), &*name.last, dir, &*new) {
        Ok(()) => {}
        // Where the copy still has its name, it is the call that has no such thing.
        Err(errno @ Errno::NOENT) => {
            let is_there = name.is_copy(there.as_fd(), &name.last)?;
            return Ok(if is_there { Linked::Refused(errno) } else { Linked::Lost });
        }
        Err(Errno::EXIST) => return Err(Failure::Refused(Refusal::JustCreated)),
        Err(errno) if has_no_links(errno) => return Ok(Linked::Refused(errno)),
        Err(errno) => return Err(Failure::Sink("linkat", errno, 0)),
    }
    match is_copy(&new) {
        Ok(true) => {}
        answer => {
            unlink(dir, &new).map_err(at_sink("unlinkat"))?;
            return answer.map(|_| Linked::Lost);
        }
    }
    if is_hidden {
        return Ok(Linked::Done(None));
    }
    let spot = Spot { dir, name: leaf.name };
    let linked = set_aside(options, spot, stat).and_then(|backup| {
        let renamed = rename(dir, &new, leaf.name, options.replaces_nothing());
        renamed.map(|()| backup).map_err(at_sink("renameat2"))
    });
    // Where both are one file, rename does nothing and leaves both.
    ignore(unlink(dir, &new));
    match linked {
        Err(Failure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => Ok(Linked::Skipped),
        answer => answer.map(Linked::Done),
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
    fn directory(&self) -> Attempt<Arc<OwnedFd>> {
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

impl Worker<'_> {
    /// Links one more name to a copy, and tells of it.
    pub fn link(
        &mut self,
        leaf: &Leaf<'_>,
        at: (BorrowedFd<'_>, &Stat),
        name: &Name,
    ) -> Attempt<Named> {
        let linked = link(self.run.options, leaf, at, name);
        if linked.is_err() {
            self.run.links.meet_again(at.1, name);
        }
        match linked? {
            Linked::Done(backup) => {
                self.tally.links += 1;
                self.tell_copied(leaf, backup.as_deref());
            }
            Linked::Skipped => self.skip(leaf, Skip::Exists),
            Linked::Lost => {
                self.run.links.forget(at.1, name);
                return Ok(Named::Lost);
            }
            Linked::Refused(errno) => {
                self.tally.unlinked += 1;
                let destination = &leaf.destination_path();
                self.run.events.event(&Event::NotLinked { destination, errno });
                return Ok(Named::Refused);
            }
        }
        Ok(Named::Done)
    }

    /// Makes a name that is left as it was one of the copy that another name has already. What is newer
    /// than the source stays.
    pub fn leave_name(
        &mut self,
        leaf: &Leaf<'_>,
        at: (BorrowedFd<'_>, &Stat),
        there: &Stat,
    ) -> Attempt<LeftName> {
        let (dir, stat) = at;
        let is_newer = mtime(there) > mtime(stat);
        loop {
            match self.run.links.meet(leaf, stat) {
                Met::First => return Ok(LeftName::First),
                Met::Waits => return Ok(LeftName::Waits),
                Met::Again(name) => {
                    let is_link = name.is_copy(dir, leaf.name);
                    if is_link.is_err() {
                        self.run.links.meet_again(stat, &name);
                    }
                    if is_link? || is_newer {
                        return Ok(LeftName::Stays);
                    }
                    match self.link(leaf, at, &name)? {
                        Named::Done => return Ok(LeftName::Linked),
                        Named::Lost => {}
                        Named::Refused => return Ok(LeftName::Stays),
                    }
                }
            }
        }
    }

    /// Has those that wait for a name linked to what it became, or one of them copied if it became nothing.
    pub fn wake_for(&self, leaf: &Leaf<'_>, stat: &Stat, copy: Attempt<Option<Id>>) -> Attempt<()> {
        self.wake(match &copy {
            Ok(Some(copy)) => self.run.links.made(leaf, stat, *copy),
            _ => self.run.links.failed(stat),
        });
        copy.map(drop)
    }

    /// Sends those that waited for a copy through the queue again.
    pub fn wake(&self, waiting: Vec<Waiting>) {
        for Waiting { directory, from, source, name } in waiting {
            self.run.queue.push(match from {
                Origin::Caller | Origin::Named(_) => Task::Named { directory, from, source, name },
                Origin::Listed(_) => {
                    let mut names = Names::default();
                    names.push(0, &name);
                    Task::Batch { directory, from, names }
                }
            });
        }
    }
}
