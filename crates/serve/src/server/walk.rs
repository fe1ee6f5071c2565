//! A tree, entry by entry: one directory is open at a time, and directories come before what is in them. Links are
//! listed, not followed.

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

/// What is below a directory, as far as it is served.
pub struct Tree {
    site: Arc<Site>,
    top: PathBuf,
    /// Directories below the top that are not read yet.
    waiting: PathQueue,
    /// Memory of `waiting` that is counted for all trees of the site.
    counted: u64,
    open: Option<OpenDirectory>,
    /// The names of the open directory and the place of the next one, during a turn.
    names: Option<(Arc<NameList>, usize)>,
    lane: Lane,
}

struct OpenDirectory {
    /// Below the top.
    path: PathBuf,
    directory: OwnedFd,
    cursor: NameCursor,
}

/// A file, a folder or a link.
pub struct Entry {
    /// Below the top.
    pub path: PathBuf,
    pub kind: Kind,
    pub stat: Stat,
}

/// What it is.
pub enum Kind {
    File,
    Folder,
    /// A folder that may not be read: nothing below it is listed.
    Shut,
    /// And what it holds.
    Link(Vec<u8>),
}

/// An entry that is left out: it cannot be read, or is of a kind that is not served.
pub struct LeftOut {
    pub path: PathBuf,
    /// It is a file or a folder.
    pub is_missed: bool,
}

/// The result of one step through a tree.
pub enum Next {
    Entry(Entry),
    LeftOut(LeftOut),
    /// A large directory has to be read, in another lane.
    Later,
    /// There are no more entries.
    End,
}

impl Tree {
    /// That of the folder at this path.
    pub fn of(site: Arc<Site>, top: PathBuf) -> Self {
        let mut waiting = PathQueue::default();
        waiting.push(Path::new(""));
        let lane = Lane::List(0);
        Self { site, top, waiting, counted: 0, open: None, names: None, lane }
    }

    /// Opens a file of it.
    pub fn open(&self, path: &Path) -> Option<Arc<Opened>> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(Found::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Where the next turn is to be.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Memory that it keeps between two turns, in bytes.
    pub fn held(&self) -> u64 {
        self.waiting.held()
    }

    /// Ends a turn: names are shared, so they are not kept while a client reads.
    pub fn rest(&mut self) {
        self.names = None;
    }

    /// The next entry. An error ends the answer short.
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

    /// Directories are entered when it is their turn.
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
    /// For the log.
    pub fn words(&self) -> String {
        format!("cannot read '{}'", shown(&self.path))
    }
}
