//! Walks a directory tree entry by entry. One directory is open at a time, and a directory comes before its entries. Symbolic
//! links are listed, not followed.

use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FileType, Stat};
use thalweg_core::shown;

use super::{
    body::SupplyTurn,
    listing,
    name_cache::{NameCursor, Names},
    names::NameList,
    open::{self, Found},
    opened::Opened,
    path_queue::PathQueue,
    site::Site,
    tasks::Lane,
};

/// The entries below a directory that are served.
pub struct Tree {
    site: Arc<Site>,
    top: PathBuf,
    /// Directories below the top that have not been read.
    waiting: PathQueue,
    /// Memory of `waiting` that is included in the site's total.
    counted: u64,
    open: Option<OpenDirectory>,
    /// During a turn: the names of the open directory, and the position of the next one.
    names: Option<(Arc<NameList>, usize)>,
    lane: Lane,
}

struct OpenDirectory {
    /// Relative to the top.
    path: PathBuf,
    directory: OwnedFd,
    cursor: NameCursor,
}

/// A file, a directory or a symbolic link.
pub struct Entry {
    /// Relative to the top.
    pub path: PathBuf,
    pub kind: Kind,
    pub stat: Stat,
}

/// Type of an entry.
pub enum Kind {
    File,
    Folder,
    /// A directory without read permission: its entries are not listed.
    Shut,
    /// A symbolic link and its target.
    Link(Vec<u8>),
}

/// An omitted entry: it cannot be read, or its type is not served.
pub struct LeftOut {
    pub path: PathBuf,
    /// `true` if it is a file or a directory.
    pub is_missed: bool,
}

/// Result of one step of a walk.
pub enum Next {
    Entry(Entry),
    LeftOut(LeftOut),
    /// A large directory must be read in another lane.
    Later,
    /// The walk is complete.
    End,
}

impl Tree {
    /// Creates a walk of the directory at this path.
    pub fn of(site: Arc<Site>, top: PathBuf) -> Self {
        let mut waiting = PathQueue::default();
        waiting.push(Path::new(""));
        let lane = Lane::List(0);
        Self { site, top, waiting, counted: 0, open: None, names: None, lane }
    }

    /// Opens a file of the tree.
    pub fn open(&self, path: &Path) -> Option<Arc<Opened>> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(Found::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Returns the lane of the next turn.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Returns the memory, in bytes, that is kept between two turns.
    pub fn held(&self) -> u64 {
        self.waiting.held()
    }

    /// Ends a turn: releases the shared name list, so that it is not held while a client reads.
    pub fn rest(&mut self) {
        self.names = None;
    }

    /// Returns the next entry. An error ends the answer before its last byte.
    pub fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<Next, String> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.waiting.pop() else { return Ok(Next::End) };
                let Some(directory) = self.read(&path) else {
                    return Ok(Next::LeftOut(LeftOut { path, is_missed: true }));
                };
                self.lane = Lane::list(&directory);
                self.open = Some(OpenDirectory { path, directory, cursor: NameCursor::default() });
                continue;
            };
            let (list, place) = match &mut self.names {
                Some((list, place)) => (list, place),
                None => match open.list(&self.site, turn) {
                    Ok(Names::Listed(list)) => {
                        self.lane = Lane::list(&open.directory);
                        let place = list.place_after(&open.cursor.after);
                        let (list, place) = self.names.insert((list, place));
                        (list, place)
                    }
                    Ok(Names::Large) => {
                        self.lane = Lane::sort(&open.directory);
                        return Ok(Next::Later);
                    }
                    Err(_) => {
                        (turn.go_on)().map_err(|_| "the client is gone".to_owned())?;
                        let path = self.open.take().map(|open| open.path).unwrap_or_default();
                        return Ok(Next::LeftOut(LeftOut { path, is_missed: true }));
                    }
                },
            };
            if let Some((_, name)) = list.get(*place) {
                *place += 1;
                open.cursor.after.clear();
                open.cursor.after.extend_from_slice(name);
                let entry = open.entry(OsStr::from_bytes(name));
                return self.found(entry);
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

    /// Returns an entry, and queues it if it is a directory.
    fn found(&mut self, entry: Result<Entry, LeftOut>) -> Result<Next, String> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(left_out) => return Ok(Next::LeftOut(left_out)),
        };
        if matches!(entry.kind, Kind::Folder) {
            self.waiting.push(&entry.path);
            let held = self.waiting.held();
            let is_full = !self.site.count_paths(&mut self.counted, held);
            if is_full {
                return Err("directories that wait need more memory than is allowed".to_owned());
            }
        }
        Ok(Next::Entry(entry))
    }

    fn read(&self, path: &Path) -> Option<OwnedFd> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(Found::Folder(fd)) => listing::open(fd, OsStr::new(".")).ok(),
            _ => None,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.site.count_paths(&mut self.counted, 0);
    }
}

impl OpenDirectory {
    fn list(&mut self, site: &Site, turn: &SupplyTurn<'_>) -> Result<Names, thalweg_sys::Errno> {
        site.names.names(&self.directory, &mut self.cursor, turn.may_sort, turn.go_on)
    }

    fn entry(&self, name: &OsStr) -> Result<Entry, LeftOut> {
        let path = self.path.join(name);
        let left_out = |is_missed| Err(LeftOut { path: path.clone(), is_missed });
        let Ok(stat) = listing::stat(&self.directory, name) else { return left_out(true) };
        let kind = match open::kind(&stat) {
            FileType::RegularFile => Kind::File,
            FileType::Directory if !listing::may_be_read(&self.directory, name) => Kind::Shut,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => match rustix::fs::readlinkat(&self.directory, name, Vec::new()) {
                Ok(target) => Kind::Link(target.into_bytes()),
                Err(_) => return left_out(true),
            },
            _ => return left_out(false),
        };
        Ok(Entry { path, kind, stat })
    }
}

impl LeftOut {
    /// Returns the text for the log.
    pub fn words(&self) -> String {
        format!("cannot read '{}'", shown(&self.path))
    }
}
