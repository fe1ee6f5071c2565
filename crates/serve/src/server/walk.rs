//! Walks a directory tree entry by entry. One directory is open at a time, and a directory comes before its entries.
//! Symbolic links are listed, or replaced by their targets if the client requests this.

use std::{
    collections::VecDeque,
    ffi::{CString, OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FileType, Stat, fstat};
use thalweg_core::shown;
use thalweg_sys::Errno;
use thalweg_tree::{Filter, install::EntryXattrs, sync::DirectoryFilter};

use super::{
    body::SupplyTurn,
    listing,
    name_cache::{NameCursor, NameLookup},
    names::NameList,
    open::{self, ServedEntry},
    opened::ServedFile,
    path_queue::PathQueue,
    site::ServedSite,
    tasks::HelperLane,
};
use crate::manifest::{GroupFilter, LONGEST_XATTRS, SpecialFile, has_room};

/// The entries below a directory that are served.
pub struct TreeWalk {
    site: Arc<ServedSite>,
    top: PathBuf,
    options: WalkOptions,
    /// Directories below the top that have not been read.
    waiting: PathQueue,
    /// For each directory in `waiting`, the directory that contains it. Empty unless links are followed.
    waiting_in: VecDeque<Option<Arc<Ancestor>>>,
    /// Memory of `waiting` that is included in the site's total.
    counted: u64,
    /// Path of the directory that is opened next, relative to the top.
    entered: Option<PathBuf>,
    open: Option<OpenDirectory>,
    /// During a turn: the names of the open directory, and the position of the next one.
    names: Option<(Arc<NameList>, usize)>,
    lane: HelperLane,
}

struct OpenDirectory {
    /// Relative to the top.
    path: PathBuf,
    directory: OwnedFd,
    cursor: NameCursor,
    /// This directory and those above it. `None` unless links are followed.
    ancestor: Option<Arc<Ancestor>>,
}

/// A directory that the walk has entered. A followed link that leads back to it is detected by its `id`.
struct Ancestor {
    id: (u64, u64),
    above: Option<Arc<Self>>,
}

/// An entry that is served.
pub struct WalkEntry {
    pub name: OsString,
    pub kind: WalkKind,
    pub stat: Stat,
    /// Empty unless the client requests them.
    pub xattrs: EntryXattrs,
}

/// Options of a walk that a client requests.
#[derive(Default)]
pub struct WalkOptions {
    pub filter: Option<DirectoryFilter>,
    /// `true` to read extended attributes.
    pub xattrs: bool,
    /// `true` to return FIFOs, sockets and devices.
    pub specials: bool,
    /// `true` to return the targets of symbolic links in place of the links, as far as the server follows them.
    pub copy_links: bool,
    /// The device on which the walk stays.
    pub device: Option<u64>,
}

/// Type of an entry.
pub enum WalkKind {
    File,
    Directory,
    /// A directory without read permission: its entries are not listed.
    Shut,
    /// A directory on another device than [`WalkOptions::device`]: its entries are not listed.
    Elsewhere,
    /// A symbolic link and its target.
    Link(CString),
    Special(SpecialFile),
}

/// An omitted entry: it cannot be read, or its type is not served.
pub struct OmittedEntry {
    pub path: PathBuf,
    /// `true` if the entry is a file or a directory.
    pub is_missed: bool,
}

/// Result of one step of a walk.
pub enum WalkStep {
    /// The following entries are in the next directory. Directories come in the order of their entries.
    Enter(GroupFilter),
    Entry(WalkEntry),
    LeftOut(OmittedEntry),
    /// An entry that the filter excludes, with everything below it.
    Excluded,
    /// The next directory is large. A helper thread must read it, as a task of the lane for large directories
    /// ([`HelperLane`]).
    Later,
    /// The walk is complete.
    End,
}

impl TreeWalk {
    /// Creates a walk of the directory at this path.
    pub fn of(site: Arc<ServedSite>, top: PathBuf, options: WalkOptions) -> Self {
        let mut waiting = PathQueue::default();
        waiting.push(Path::new(""));
        let lane = HelperLane::List(0);
        Self {
            site,
            top,
            options,
            waiting,
            waiting_in: VecDeque::new(),
            counted: 0,
            entered: None,
            open: None,
            names: None,
            lane,
        }
    }

    /// Returns the path of an entry of the current directory, relative to the top.
    pub fn path(&self, name: &OsStr) -> PathBuf {
        self.open.as_ref().map_or_else(|| name.into(), |open| open.path.join(name))
    }

    /// Opens a file of the tree.
    pub fn open(&self, path: &Path) -> Option<Arc<ServedFile>> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(ServedEntry::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Returns `true` if connections should open few files, because there are many of them.
    pub fn is_crowded(&self) -> bool {
        self.site.is_crowded()
    }

    /// Returns `true` if the walk returns the targets of symbolic links.
    pub fn copies_links(&self) -> bool {
        self.options.copy_links
    }

    /// Returns the lane of the next turn.
    pub fn lane(&self) -> HelperLane {
        self.lane
    }

    /// Returns the memory, in bytes, that is kept between two turns.
    pub fn held(&self) -> u64 {
        let above = self.waiting_in.len() * size_of::<(Ancestor, Arc<Ancestor>)>();
        self.waiting.held() + above as u64
    }

    /// Ends a turn: releases the shared name list, so that it is not held while a client reads.
    pub fn rest(&mut self) {
        self.names = None;
    }

    /// Returns the next entry. An error ends the answer before its last byte.
    pub fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<WalkStep, String> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.entered.take() else {
                    let Some(path) = self.waiting.pop() else { return Ok(WalkStep::End) };
                    let filter = self.filter_of(&path);
                    self.entered = Some(path);
                    return Ok(WalkStep::Enter(filter));
                };
                let above = self.waiting_in.pop_front().flatten();
                let Some((directory, ancestor)) = self.read(&path, above) else {
                    return Ok(WalkStep::LeftOut(OmittedEntry { path, is_missed: true }));
                };
                self.lane = HelperLane::list(&directory);
                let cursor = NameCursor::default();
                self.open = Some(OpenDirectory { path, directory, cursor, ancestor });
                continue;
            };
            let (list, place) = match &mut self.names {
                Some((list, place)) => (list, place),
                None => match open.list(&self.site, turn) {
                    Ok(NameLookup::Listed(list)) => {
                        self.lane = HelperLane::list(&open.directory);
                        let place = list.place_after(&open.cursor.after);
                        let (list, place) = self.names.insert((list, place));
                        (list, place)
                    }
                    Ok(NameLookup::Large) => {
                        self.lane = HelperLane::sort(&open.directory);
                        return Ok(WalkStep::Later);
                    }
                    Err(_) => {
                        (turn.check_cancelled)().map_err(|_| "client disconnected".to_owned())?;
                        let path = self.open.take().map(|open| open.path).unwrap_or_default();
                        return Ok(WalkStep::LeftOut(OmittedEntry { path, is_missed: true }));
                    }
                },
            };
            if let Some((kind, name)) = list.get(*place) {
                *place += 1;
                open.cursor.after.clear();
                open.cursor.after.extend_from_slice(name);
                let name = OsString::from_vec(name.to_vec());
                return self.entry(name, kind);
            }
            if !list.is_partial() {
                self.open = None;
            } else if let Some(last) = list.last() {
                open.cursor.after.clear();
                open.cursor.after.extend_from_slice(last);
            }
            self.names = None;
        }
    }

    /// Returns an entry of the open directory. `kind`: its type according to the directory (`d_type`).
    fn entry(&mut self, name: OsString, kind: FileType) -> Result<WalkStep, String> {
        let Some(open) = &self.open else { return Ok(WalkStep::End) };
        if let Some(filter) = &self.options.filter {
            let path = open.path.join(&name);
            let is_directory = self.kind(open, &name, kind) == Ok(FileType::Directory);
            if filter.leaves_out(&path, is_directory) {
                return Ok(WalkStep::Excluded);
            }
        }
        let entry = match open.entry(name, &self.options) {
            Ok(WalkEntry { name, kind: WalkKind::Link(_), .. }) if self.options.copy_links => {
                self.target(name)
            }
            entry => entry,
        };
        self.found(entry)
    }

    /// Returns the type of an entry. With `copy_links`, a symbolic link has the type of its target. `kind`: the type
    /// according to the directory (`d_type`).
    fn kind(&self, open: &OpenDirectory, name: &OsStr, kind: FileType) -> Result<FileType, Errno> {
        let kind = match kind {
            FileType::Unknown => open::kind(&listing::stat(&open.directory, name)?),
            known => known,
        };
        if kind == FileType::Symlink && self.options.copy_links {
            let stat = self.site.root.stat(&self.top.join(&open.path).join(name))?;
            return Ok(open::kind(&stat));
        }
        Ok(kind)
    }

    /// Returns the target of a symbolic link of the current directory as an entry with the name of the link.
    fn target(&self, name: OsString) -> Result<WalkEntry, OmittedEntry> {
        let path = self.path(&name);
        match self.open_target(&path) {
            Some((kind, stat, xattrs)) => Ok(WalkEntry { name, kind, stat, xattrs }),
            None => Err(OmittedEntry { path, is_missed: true }),
        }
    }

    /// Opens a path and follows symbolic links. Returns the type, metadata and attributes of the target, or `None` if
    /// the server does not follow the link or cannot read the target.
    fn open_target(&self, path: &Path) -> Option<(WalkKind, Stat, EntryXattrs)> {
        let path = self.top.join(path);
        let (kind, fd) = match self.site.root.find(&path, None) {
            Err(_) => {
                let found = self.site.root.identify(&path).ok();
                let (stat, fd) = found.filter(|_| self.options.specials)?;
                let special = SpecialFile::of(open::kind(&stat), stat.st_rdev)?;
                (WalkKind::Special(special), fd)
            }
            Ok(ServedEntry::File(file)) => {
                (WalkKind::File, file.as_fd().try_clone_to_owned().ok()?)
            }
            Ok(ServedEntry::Directory(fd)) => match listing::open(&fd, OsStr::new(".")) {
                Ok(fd) => (WalkKind::Directory, fd),
                Err(Errno::ACCESS | Errno::PERM) => (WalkKind::Shut, fd),
                Err(_) => return None,
            },
        };
        let stat = fstat(&fd).ok()?;
        let is_path = matches!(kind, WalkKind::Shut | WalkKind::Special(_));
        let read = if is_path { EntryXattrs::of_path_fd } else { EntryXattrs::of };
        let xattrs = self.options.xattrs.then(|| read(fd.as_fd()));
        let xattrs = xattrs.transpose().ok()?.unwrap_or_default();
        let is_elsewhere = matches!(kind, WalkKind::Directory) && self.options.is_elsewhere(&stat);
        let kind = if is_elsewhere { WalkKind::Elsewhere } else { kind };
        has_room(&xattrs, LONGEST_XATTRS).then_some((kind, stat, xattrs))
    }

    /// Returns an entry, and queues it if it is a directory.
    fn found(&mut self, entry: Result<WalkEntry, OmittedEntry>) -> Result<WalkStep, String> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(left_out) => return Ok(WalkStep::LeftOut(left_out)),
        };
        if matches!(entry.kind, WalkKind::Directory) {
            let path = self.path(&entry.name);
            let above = self.open.as_ref().and_then(|open| open.ancestor.as_ref());
            if Ancestor::is_among(above, &entry.stat) {
                return Ok(WalkStep::LeftOut(OmittedEntry { path, is_missed: true }));
            }
            // The queue cannot hold such a long path, so the directory is left out.
            if !self.waiting.push(&path) {
                return Ok(WalkStep::LeftOut(OmittedEntry { path, is_missed: true }));
            }
            if self.options.copy_links {
                self.waiting_in.push_back(above.map(Arc::clone));
            }
            let held = self.held();
            let is_full = !self.site.count_paths(&mut self.counted, held);
            if is_full {
                return Err("too many unread directories for --memory; raise --memory".to_owned());
            }
        }
        Ok(WalkStep::Entry(entry))
    }

    /// Reads the filter file of a directory, if the client requests such files.
    fn filter_of(&self, path: &Path) -> GroupFilter {
        match self.options.filter.as_ref().filter(|filter| filter.has_files()) {
            Some(filter) => filter.read(path).map_or(GroupFilter::Unreadable, GroupFilter::Text),
            None => GroupFilter::NotRequested,
        }
    }

    /// Opens a directory. Its path may lead elsewhere than when its entry was returned, so the rules are checked again.
    fn read(
        &self,
        path: &Path,
        above: Option<Arc<Ancestor>>,
    ) -> Option<(OwnedFd, Option<Arc<Ancestor>>)> {
        let Ok(ServedEntry::Directory(fd)) = self.site.root.find(&self.top.join(path), None) else {
            return None;
        };
        let directory = listing::open(fd, OsStr::new(".")).ok()?;
        if !self.options.copy_links && self.options.device.is_none() {
            return Some((directory, None));
        }
        let stat = fstat(&directory).ok()?;
        if self.options.is_elsewhere(&stat) || Ancestor::is_among(above.as_ref(), &stat) {
            return None;
        }
        let id = (stat.st_dev, stat.st_ino);
        let ancestor = self.options.copy_links.then(|| Arc::new(Ancestor { id, above }));
        Some((directory, ancestor))
    }
}

impl Ancestor {
    /// Returns `true` if a directory is among `first` and the directories above it.
    fn is_among(first: Option<&Arc<Self>>, stat: &Stat) -> bool {
        let mut all = std::iter::successors(first, |ancestor| ancestor.above.as_ref());
        all.any(|ancestor| ancestor.id == (stat.st_dev, stat.st_ino))
    }
}

impl Drop for Ancestor {
    /// Drops the directories above in a loop, because recursion could overflow the stack in a deep tree.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(ancestor) = above {
            above = Arc::into_inner(ancestor).and_then(|mut ancestor| ancestor.above.take());
        }
    }
}

impl Drop for TreeWalk {
    fn drop(&mut self) {
        self.site.count_paths(&mut self.counted, 0);
    }
}

impl OpenDirectory {
    fn list(&mut self, site: &ServedSite, turn: &SupplyTurn<'_>) -> Result<NameLookup, Errno> {
        site.names.names(&self.directory, &mut self.cursor, turn.may_sort, turn.check_cancelled)
    }

    fn entry(&self, name: OsString, options: &WalkOptions) -> Result<WalkEntry, OmittedEntry> {
        let left_out = |is_missed| Err(OmittedEntry { path: self.path.join(&name), is_missed });
        let Ok(stat) = listing::stat(&self.directory, &name) else { return left_out(true) };
        let kind = match open::kind(&stat) {
            FileType::RegularFile => WalkKind::File,
            FileType::Directory if !listing::may_be_read(&self.directory, &name) => WalkKind::Shut,
            FileType::Directory if options.is_elsewhere(&stat) => WalkKind::Elsewhere,
            FileType::Directory => WalkKind::Directory,
            FileType::Symlink => match rustix::fs::readlinkat(&self.directory, &name, Vec::new()) {
                Ok(target) => WalkKind::Link(target),
                Err(_) => return left_out(true),
            },
            kind => match SpecialFile::of(kind, stat.st_rdev).filter(|_| options.specials) {
                Some(special) => WalkKind::Special(special),
                None => return left_out(false),
            },
        };
        let is_link = matches!(kind, WalkKind::Link(_));
        let has_xattrs = options.xattrs && !is_link;
        let xattrs = if has_xattrs { self.xattrs(&name) } else { Ok(EntryXattrs::default()) };
        match xattrs {
            Ok(xattrs) if has_room(&xattrs, LONGEST_XATTRS) => {
                Ok(WalkEntry { name, kind, stat, xattrs })
            }
            _ => left_out(true),
        }
    }

    fn xattrs(&self, name: &OsStr) -> Result<EntryXattrs, Errno> {
        let name = CString::new(name.as_bytes()).unwrap_or_default();
        EntryXattrs::of_entry(self.directory.as_fd(), &name)
    }
}

impl WalkOptions {
    fn is_elsewhere(&self, stat: &Stat) -> bool {
        self.device.is_some_and(|device| device != stat.st_dev)
    }
}

impl OmittedEntry {
    /// Returns the text for the log.
    pub fn words(&self) -> String {
        format!("cannot read '{}'", shown(&self.path))
    }
}
