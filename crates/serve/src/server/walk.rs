//! A tree, entry by entry: one folder is open at a time, and folders come before what is in them. Links are
//! told of, not followed.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

use rustix::fs::{FileType, Stat};
use thalweg_core::shown;

use super::{
    listing::Folder,
    open::{self, Found},
    opened::Opened,
    site::Site,
};

/// What is below a folder, as far as it is served.
pub struct Tree {
    site: Arc<Site>,
    top: PathBuf,
    // Below the top, and not read yet.
    folders: VecDeque<PathBuf>,
    open: Option<Open>,
}

struct Open {
    /// Below the top.
    path: PathBuf,
    folder: Folder,
    names: vec::IntoIter<OsString>,
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
    /// A folder that may not be read: nothing below it is told of.
    Shut,
    /// And what it holds.
    Link(Vec<u8>),
}

/// What is there and is left out: it cannot be read, or is of a kind that is not served.
pub struct LeftOut {
    pub path: PathBuf,
    /// It is a file or a folder.
    pub is_missed: bool,
}

impl Tree {
    /// That of the folder at this path.
    pub fn of(site: Arc<Site>, top: PathBuf) -> Self {
        Self { site, top, folders: VecDeque::from([PathBuf::new()]), open: None }
    }

    /// Opens a file of it.
    pub fn open(&self, path: &Path) -> Option<Arc<Opened>> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(Found::File(file)) => Some(file),
            _ => None,
        }
    }

    fn read(&self, path: &Path) -> Option<Folder> {
        match self.site.root.find(&self.top.join(path), None) {
            Ok(Found::Folder(fd)) => Folder::read(&fd, self.site.hidden).ok(),
            _ => None,
        }
    }
}

impl Iterator for Tree {
    type Item = Result<Entry, LeftOut>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(name) = open.names.next() {
                    let entry = open.entry(&name);
                    if let Ok(Entry { kind: Kind::Folder, path, .. }) = &entry {
                        self.folders.push_back(path.clone());
                    }
                    return Some(entry);
                }
                self.open = None;
            }
            let path = self.folders.pop_front()?;
            let Some(mut folder) = self.read(&path) else {
                return Some(Err(LeftOut { path, is_missed: true }));
            };
            let names = std::mem::take(&mut folder.names).into_iter();
            self.open = Some(Open { path, folder, names });
        }
    }
}

impl Open {
    fn entry(&self, name: &OsString) -> Result<Entry, LeftOut> {
        let path = self.path.join(name);
        let left_out = |is_missed| Err(LeftOut { path: path.clone(), is_missed });
        let Ok(stat) = self.folder.stat(name) else { return left_out(true) };
        let kind = match open::kind(&stat) {
            FileType::RegularFile => Kind::File,
            FileType::Directory if !self.folder.may_be_read(name) => Kind::Shut,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => match self.folder.link(name) {
                Ok(target) => Kind::Link(target),
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
