//! Walks through one tree, or through two trees in parallel, with several threads. A walk changes nothing.
//!
//! Queued directories are stored as names and opened by their path from the root. Therefore neither descriptors nor
//! the stack limit the depth of a tree. The order of visits depends on the threads.

use rustix::fs::{CWD, FileType, Mode, openat};
use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_core::Cancelled;
use thalweg_sys::Errno;

use super::{
    beneath::{Beneath, FollowLinks},
    list::{DIRECTORY, DirectoryHandle, NAMED_DIRECTORY, each_entry, listing_buffer, type_of},
};
use crate::{
    Error,
    error::at_path,
    names::os,
    paths::DirectoryPaths,
    queue::{PackedNames, TaskQueue},
    read::TO_READ,
    threads::on_threads,
};

/// The file types of one name on both sides; `None` if the name does not exist on that side.
pub(crate) type Kinds = [Option<FileType>; 2];

/// Callbacks of a walk.
pub(crate) trait Visit: Sync {
    /// Per-thread state.
    type Hand: Send;
    /// A task for any thread, such as a part of a file that is too large for one thread.
    type Work: Send;

    /// Returns the initial state of a thread.
    fn hand(&self) -> Self::Hand;
    /// Visits an entry. A directory is visited before its entries.
    fn entry(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut Self::Hand,
        at: &VisitedEntry<'_>,
        kinds: Kinds,
    );
    /// Performs a task that an earlier call queued.
    fn work(&self, _crew: &WalkShared<'_, Self>, _hand: &mut Self::Hand, _work: Self::Work) {}
    /// Reports an entry that cannot be read. The walk skips its contents, or the rest of them.
    fn failed(&self, error: Error);
    /// Returns an error to stop the walk.
    fn go_on(&self) -> Result<(), Cancelled>;
}

/// The roots of a walk: a directory on one side, or one on each side.
#[derive(Debug)]
pub(crate) struct WalkRoot {
    paths: Arc<DirectoryPaths<()>>,
    sides: [Option<Beneath<OwnedFd>>; 2],
}

/// A directory that is open on one side or on both.
#[derive(Debug)]
pub(crate) struct WalkDirectory {
    paths: Arc<DirectoryPaths<()>>,
    sides: [Option<DirectoryHandle>; 2],
}

/// One name in a directory.
pub(crate) struct VisitedEntry<'a> {
    folder: &'a WalkDirectory,
    names: [&'a CStr; 2],
}

/// A task of a walk.
pub(crate) enum WalkTask<W> {
    /// A tree to walk.
    Tree(Arc<WalkRoot>),
    /// An entry that the caller named. A symbolic link is followed.
    Named([CString; 2], Kinds),
    /// Subdirectories of a directory, from position `at` in the packed names.
    Folders {
        root: Arc<WalkRoot>,
        paths: Arc<DirectoryPaths<()>>,
        names: Arc<PackedNames>,
        at: usize,
    },
    /// Entries of one directory, for an idle thread.
    Entries { folder: Arc<WalkDirectory>, names: PackedNames },
    /// A task that the visitor queued.
    Work(W),
}

/// State shared by the threads of a walk.
pub(crate) struct WalkShared<'c, V: Visit + ?Sized> {
    visit: &'c V,
    queue: TaskQueue<WalkTask<V::Work>>,
    pub threads: usize,
}

/// The name and the errno of a failed call.
type WalkFailure = (&'static str, Errno);

// Number of names handed to an idle thread at a time.
const BATCH: usize = 64;
const ABSENT: u8 = 0xf;

/// Performs these tasks and all tasks that follow from them. Returns the states of the threads.
pub(crate) fn walk<V: Visit>(
    visit: &V,
    tasks: impl IntoIterator<Item = WalkTask<V::Work>>,
    threads: usize,
) -> Vec<V::Hand> {
    let crew = WalkShared { visit, queue: TaskQueue::default(), threads };
    tasks.into_iter().for_each(|task| crew.queue.push(task));
    on_threads(threads, || {
        let mut walker = TreeWalker { crew: &crew, hand: visit.hand(), listings: Vec::new() };
        while let Some((task, busy)) = crew.queue.next() {
            if visit.go_on().is_ok() {
                walker.perform(task);
            }
            drop(busy);
        }
        walker.hand
    })
}

impl<V: Visit> WalkShared<'_, V> {
    /// Queues a task.
    pub fn share(&self, work: V::Work) {
        self.queue.push(WalkTask::Work(work));
    }
}

impl WalkRoot {
    /// Opens one or two directories by path.
    pub fn open(paths: [Option<&CStr>; 2]) -> Result<Self, Error> {
        let mut sides = [None, None];
        for (side, path) in sides.iter_mut().zip(paths) {
            let Some(path) = path else { continue };
            let fd = openat(CWD, path, NAMED_DIRECTORY, Mode::empty());
            let fd = fd.map_err(at_path(Path::new(os(path)), "openat"))?;
            *side = Some(Beneath::new(fd, FollowLinks::Never));
        }
        let [source, destination] = paths.map(|path| path.unwrap_or_default().to_owned());
        Ok(Self { paths: DirectoryPaths::root(source, destination), sides })
    }

    /// Opens a directory below the root.
    fn open_below(&self, paths: &DirectoryPaths<()>, side: usize) -> Result<OwnedFd, Errno> {
        let root = self.sides[side].as_ref().ok_or(Errno::NOENT)?;
        let names: Vec<&[u8]> = paths.names().into_iter().map(CStr::to_bytes).collect();
        root.open(&names.join(&b'/'), DIRECTORY)
    }

    /// Opens for reading a path that starts at the root. The caller gave the path, so symbolic links are followed.
    pub fn open_path(&self, side: usize, path: &[u8]) -> Result<OwnedFd, Errno> {
        let root = self.sides[side].as_ref().ok_or(Errno::NOENT)?;
        Beneath::new(root.root(), FollowLinks::Anywhere).open(path, TO_READ)
    }
}

impl<'a> VisitedEntry<'a> {
    /// Returns the directory on one side, if it exists there.
    pub fn dir(&self, side: usize) -> Option<BorrowedFd<'_>> {
        self.folder.sides[side].as_ref().map(AsFd::as_fd)
    }

    /// Returns the name on one side.
    pub fn name(&self, side: usize) -> &'a CStr {
        self.names[side]
    }

    /// Returns `true` if the caller named the entry. A symbolic link is then followed.
    pub fn is_named_by_caller(&self) -> bool {
        self.folder.sides.iter().flatten().any(|side| matches!(side, DirectoryHandle::Caller))
    }

    /// Returns the path on one side, for messages.
    pub fn path(&self, side: usize) -> PathBuf {
        let paths = &self.folder.paths;
        let mut path = if side == 0 { paths.source_path() } else { paths.destination_path() };
        path.push(os(self.names[side]));
        path
    }

    /// Returns the path below the root.
    pub fn below_root(&self) -> Vec<u8> {
        let mut path = Vec::new();
        for name in self.folder.paths.names() {
            path.extend_from_slice(name.to_bytes());
            path.push(b'/');
        }
        path.extend_from_slice(self.names[0].to_bytes());
        path
    }

    /// Returns the error for a failed call on one side.
    pub fn failed(&self, side: usize, call: &'static str, errno: Errno) -> Error {
        at_path(&self.path(side), call)(errno)
    }
}

/// One thread of the walk.
struct TreeWalker<'w, V: Visit> {
    crew: &'w WalkShared<'w, V>,
    hand: V::Hand,
    // Unused buffers for `getdents64`.
    listings: Vec<Vec<MaybeUninit<u8>>>,
}

impl<V: Visit> TreeWalker<'_, V> {
    fn perform(&mut self, task: WalkTask<V::Work>) {
        match task {
            WalkTask::Tree(root) => {
                let present = root.sides.each_ref().map(Option::is_some);
                self.enter(&root, Arc::clone(&root.paths), present);
            }
            WalkTask::Named(names, kinds) => {
                let paths = DirectoryPaths::root(CString::default(), CString::default());
                let sides = kinds.map(|kind| kind.map(|_| DirectoryHandle::Caller));
                let names = names.each_ref().map(CString::as_c_str);
                let at = VisitedEntry { folder: &WalkDirectory { paths, sides }, names };
                self.crew.visit.entry(self.crew, &mut self.hand, &at, kinds);
            }
            WalkTask::Folders { root, paths, names, at } => {
                let Some((code, name, next)) = names.at(at) else { return };
                let present = kinds_of(code).map(|kind| kind == Some(FileType::Directory));
                let below = DirectoryPaths::below(&paths, name);
                if names.at(next).is_some() {
                    let (root, names) = (Arc::clone(&root), Arc::clone(&names));
                    self.crew.queue.push(WalkTask::Folders { root, paths, names, at: next });
                }
                self.enter(&root, below, present);
            }
            WalkTask::Entries { folder, names } => self.entries(&folder, &names),
            WalkTask::Work(work) => self.crew.visit.work(self.crew, &mut self.hand, work),
        }
    }

    fn entries(&mut self, folder: &WalkDirectory, names: &PackedNames) {
        for (code, name) in names.iter() {
            if self.crew.visit.go_on().is_err() {
                return;
            }
            let at = VisitedEntry { folder, names: [name, name] };
            self.crew.visit.entry(self.crew, &mut self.hand, &at, kinds_of(code));
        }
    }

    fn enter(&mut self, root: &Arc<WalkRoot>, paths: Arc<DirectoryPaths<()>>, present: [bool; 2]) {
        match present {
            [true, true] => self.compare(root, paths),
            [true, false] => self.stream(root, paths, 0),
            [false, true] => self.stream(root, paths, 1),
            [false, false] => {}
        }
    }

    /// Visits the entries of a directory that exists on one side only. Visits each entry while the directory is listed,
    /// so that the names need not be stored.
    fn stream(&mut self, root: &Arc<WalkRoot>, paths: Arc<DirectoryPaths<()>>, side: usize) {
        let fd = match root.open_below(&paths, side) {
            Ok(fd) => Arc::new(fd),
            Err(errno) => return self.failed((&paths, side), ("openat", errno)),
        };
        let mut sides = [None, None];
        sides[side] = Some(DirectoryHandle::Listed(Arc::clone(&fd)));
        let folder = Arc::new(WalkDirectory { paths, sides });
        let (mut folders, mut batch) = (PackedNames::default(), PackedNames::default());
        let listed = self.list(&fd, |walker, listed, name| {
            let mut kinds = [None, None];
            kinds[side] = known(listed, folder.sides[side].as_ref(), name);
            if kinds.contains(&Some(FileType::Directory)) {
                folders.push(code_of(kinds), name);
            }
            batch.push(code_of(kinds), name);
            if batch.len() == BATCH {
                walker.share(&folder, std::mem::take(&mut batch));
            }
            walker.crew.visit.go_on().is_ok()
        });
        self.enter_later(root, &folder, folders);
        self.entries(&folder, &batch);
        if let Err(failed) = listed {
            self.failed((&folder.paths, side), failed);
        }
    }

    /// Lists a directory that exists on both sides, and visits the names in byte order.
    fn compare(&mut self, root: &Arc<WalkRoot>, paths: Arc<DirectoryPaths<()>>) {
        let mut sides = [None, None];
        let mut lists = [PackedNames::default(), PackedNames::default()];
        for side in 0..2 {
            let names = &mut lists[side];
            let mut push = |_: &mut Self, kind, name: &CStr| {
                names.push(kind, name);
                true
            };
            let opened = root.open_below(&paths, side).map_err(|errno| ("openat", errno));
            match opened.and_then(|fd| self.list(&fd, &mut push).map(|()| fd)) {
                Ok(fd) => sides[side] = Some(DirectoryHandle::Listed(Arc::new(fd))),
                // Both sides must be readable, because the names of one side alone prove no difference.
                Err(failed) => return self.failed((&paths, side), failed),
            }
        }
        let folder = Arc::new(WalkDirectory { paths, sides });
        let (mut folders, mut entries) = (PackedNames::default(), PackedNames::default());
        for (name, kinds) in merged(&folder, &lists) {
            if kinds.contains(&Some(FileType::Directory)) {
                folders.push(code_of(kinds), name);
            }
            entries.push(code_of(kinds), name);
        }
        drop(lists);
        self.enter_later(root, &folder, folders);
        let mut batch = PackedNames::default();
        for (code, name) in entries.iter() {
            batch.push(code, name);
            if batch.len() == BATCH {
                self.share(&folder, std::mem::take(&mut batch));
            }
        }
        self.entries(&folder, &batch);
    }

    fn enter_later(&self, root: &Arc<WalkRoot>, folder: &WalkDirectory, folders: PackedNames) {
        if folders.len() > 0 {
            let (root, paths) = (Arc::clone(root), Arc::clone(&folder.paths));
            self.crew.queue.push(WalkTask::Folders {
                root,
                paths,
                names: Arc::new(folders),
                at: 0,
            });
        }
    }

    /// Visits some entries, or hands them to an idle thread.
    fn share(&mut self, folder: &Arc<WalkDirectory>, names: PackedNames) {
        if self.crew.queue.is_hungry() {
            self.crew.queue.push(WalkTask::Entries { folder: Arc::clone(folder), names });
        } else {
            self.entries(folder, &names);
        }
    }

    fn failed(&self, (paths, side): (&DirectoryPaths<()>, usize), (call, errno): WalkFailure) {
        let path = if side == 0 { paths.source_path() } else { paths.destination_path() };
        self.crew.visit.failed(at_path(&path, call)(errno));
    }

    /// Passes the type and name of each entry to the callback, until that returns `false`.
    fn list(
        &mut self,
        fd: &OwnedFd,
        mut tell: impl FnMut(&mut Self, u8, &CStr) -> bool,
    ) -> Result<(), WalkFailure> {
        let mut buffer = self.listings.pop().unwrap_or_else(listing_buffer);
        let listed = each_entry(fd, &mut buffer, |entry| {
            tell(self, nibble(Some(entry.file_type())), entry.file_name())
        });
        self.listings.push(buffer);
        listed.map_err(|errno| ("getdents64", errno))
    }
}

/// Returns the names of both sides in byte order. A name that exists on both sides is returned once.
fn merged<'n>(
    folder: &'n WalkDirectory,
    lists: &'n [PackedNames; 2],
) -> impl Iterator<Item = (&'n CStr, Kinds)> + use<'n> {
    let mut sides = lists.each_ref().map(|names| {
        let mut names: Vec<(u8, &CStr)> = names.iter().collect();
        names.sort_unstable_by_key(|(_, name)| *name);
        names.into_iter().peekable()
    });
    std::iter::from_fn(move || {
        let name = sides.iter_mut().filter_map(|side| side.peek().map(|(_, name)| *name)).min()?;
        let mut kinds = [None, None];
        for (side, (kind, names)) in kinds.iter_mut().zip(&mut sides).enumerate() {
            let Some((listed, _)) = names.next_if(|(_, next)| *next == name) else { continue };
            *kind = known(listed, folder.sides[side].as_ref(), name);
        }
        Some((name, kinds))
    })
}

/// Returns the type of an entry with this code in the listing. If the file system did not report it, calls `statat`.
fn known(listed: u8, dir: Option<&DirectoryHandle>, name: &CStr) -> Option<FileType> {
    let kind = FileType::from_raw_mode(u32::from(listed) << 12);
    dir.and_then(|dir| type_of(dir, name, kind, false).ok()).or(Some(kind))
}

/// Encodes the file type on one side in four bits.
fn nibble(kind: Option<FileType>) -> u8 {
    match kind {
        None => ABSENT,
        // The raw mode of `Unknown` has all type bits set, which is the code of an absent entry.
        Some(FileType::Unknown) => 0,
        Some(kind) => (kind.as_raw_mode() >> 12) as u8,
    }
}

fn code_of(kinds: Kinds) -> u8 {
    nibble(kinds[0]) | nibble(kinds[1]) << 4
}

fn kinds_of(code: u8) -> Kinds {
    [code & ABSENT, code >> 4]
        .map(|nibble| (nibble != ABSENT).then(|| FileType::from_raw_mode(u32::from(nibble) << 12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_both_sides_fits_one_byte() {
        use FileType::{
            BlockDevice, CharacterDevice, Directory, Fifo, RegularFile, Socket, Symlink, Unknown,
        };
        let all =
            [BlockDevice, CharacterDevice, Directory, Fifo, RegularFile, Socket, Symlink, Unknown];
        let all: Vec<_> = all.into_iter().map(Some).chain([None]).collect();
        for a in &all {
            for b in &all {
                assert_eq!(kinds_of(code_of([*a, *b])), [*a, *b]);
            }
        }
    }

    #[test]
    fn names_of_two_sides_come_once_and_in_order() {
        let mut lists = [PackedNames::default(), PackedNames::default()];
        let file = nibble(Some(FileType::RegularFile));
        for (side, name) in [(0, c"c"), (0, c"a"), (1, c"b"), (1, c"c")] {
            lists[side].push(file, name);
        }
        let paths = DirectoryPaths::root(CString::default(), CString::default());
        let folder = WalkDirectory { paths, sides: [None, None] };
        let names: Vec<_> = merged(&folder, &lists)
            .map(|(name, kinds)| (name, kinds.map(|kind| kind.is_some())))
            .collect();
        let wanted = [(c"a", [true, false]), (c"b", [false, true]), (c"c", [true, true])];
        assert_eq!(names, wanted);
    }
}
