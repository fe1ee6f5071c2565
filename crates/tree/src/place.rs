//! Names: where a directory of the run came from and went to, as a chain of single names.
//!
//! Whole paths are only built to be shown. System calls get one name and a directory, so that no
//! depth is too deep; both chains may be longer than a thread's stack and are dropped in a loop.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::{Arc, OnceLock, Weak},
};

use crate::{
    directory::Directory,
    error::{Attempt, at_source},
    folder::Folder,
};

/// The names of one directory.
#[derive(Debug)]
pub(crate) struct Place {
    parent: Option<Arc<Place>>,
    source: CString,
    // None: the same as the source's.
    name: Option<CString>,
    // The caller named it: paths inside a source begin below it.
    is_named: bool,
    /// The directory itself, while it is being copied.
    pub here: OnceLock<Weak<Directory>>,
}

impl Place {
    /// A place that has no parent: its names are whole paths.
    pub fn root(source: CString, destination: CString) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            source,
            name: Some(destination),
            is_named: true,
            here: OnceLock::new(),
        })
    }

    /// The directory `leaf` in its parent.
    pub fn of(leaf: &Leaf<'_>) -> Arc<Self> {
        let name = (leaf.source != leaf.name).then(|| leaf.name.to_owned());
        let parent = Some(Arc::clone(&leaf.directory.place));
        let (source, is_named) = (leaf.source.to_owned(), leaf.named_by_caller());
        Arc::new(Self { parent, source, name, is_named, here: OnceLock::new() })
    }

    /// A place of one name in both trees.
    pub fn below(parent: &Arc<Self>, name: &CStr) -> Arc<Self> {
        let (parent, source) = (Some(Arc::clone(parent)), name.to_owned());
        Arc::new(Self { parent, source, name: None, is_named: false, here: OnceLock::new() })
    }

    /// The names from below the root down to here.
    pub fn names(&self) -> Vec<&CStr> {
        let mut names = Vec::new();
        let mut place = self;
        while let Some(parent) = &place.parent {
            names.push(place.name());
            place = parent;
        }
        names.reverse();
        names
    }

    /// The name in the destination.
    pub fn name(&self) -> &CStr {
        self.name.as_deref().unwrap_or(&self.source)
    }

    /// The place above.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// The path in the source, for people.
    pub fn source_path(&self) -> PathBuf {
        self.path(|place| &place.source)
    }

    /// The path in the destination, for people.
    pub fn destination_path(&self) -> PathBuf {
        self.path(Self::name)
    }

    /// The path below the source that the caller named, or below the root.
    fn path_inside(&self, from_root: bool) -> PathBuf {
        let mut parts = Vec::new();
        let mut place = self;
        while let Some(parent) = place.parent.as_deref().filter(|_| from_root || !place.is_named) {
            parts.push(os(place.name()));
            place = parent;
        }
        parts.into_iter().rev().filter(|name| *name != ".").collect()
    }

    fn path<'a>(&'a self, part: impl Fn(&'a Self) -> &'a CStr) -> PathBuf {
        let mut parts = vec![part(self)];
        let mut above = self.parent.as_deref();
        while let Some(place) = above {
            parts.push(part(place));
            above = place.parent.as_deref();
        }
        parts.into_iter().rev().map(os).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut place) = above.and_then(Arc::into_inner) {
            above = place.parent.take();
        }
    }
}

/// A name as the standard library sees it.
pub(crate) fn os(name: &CStr) -> &OsStr {
    os_bytes(name.to_bytes())
}

/// Bytes of a name as the standard library sees them.
pub(crate) fn os_bytes(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// A directory to open sources in.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Names are paths as the caller gave them.
    Caller,
    /// Names are the last ones of such paths, and this is the directory before them.
    Named(Arc<OwnedFd>),
    /// Names are entries of this directory.
    Listed(Arc<Folder>),
}

impl Origin {
    /// The open directory.
    pub fn open(&self) -> Attempt<Opened> {
        match self {
            Self::Caller => Ok(Opened::Caller),
            Self::Named(fd) => Ok(Opened::Listed(Arc::clone(fd))),
            Self::Listed(folder) => folder.open().map(Opened::Listed).map_err(at_source("openat")),
        }
    }

    /// The directory, if it was met in a walk.
    pub fn folder(&self) -> Option<&Arc<Folder>> {
        match self {
            Self::Caller | Self::Named(_) => None,
            Self::Listed(folder) => Some(folder),
        }
    }

    /// Whether the caller named what is opened here.
    pub fn is_named(&self) -> bool {
        !matches!(self, Self::Listed(_))
    }
}

/// An [`Origin`] that stays open as long as this is held.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    /// As [`Origin::Caller`].
    Caller,
    /// This directory.
    Listed(Arc<OwnedFd>),
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Caller => rustix::fs::CWD,
            Self::Listed(fd) => fd.as_fd(),
        }
    }
}

/// One thing to copy: a name in a source directory, and the name it gets in a destination directory.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    /// The destination directory.
    pub directory: &'a Arc<Directory>,
    /// The source directory.
    pub from: &'a Origin,
    /// The name in the source directory.
    pub source: &'a CStr,
    /// The name in the destination directory.
    pub name: &'a CStr,
}

impl Leaf<'_> {
    /// Whether the caller named it, so that it was not met in a directory.
    pub fn named_by_caller(&self) -> bool {
        self.from.is_named()
    }

    /// The path of an entry for a filter: inside the source that the caller named, or below the root.
    pub fn path_inside(&self, from_root: bool) -> PathBuf {
        let mut path = self.directory.place.path_inside(from_root);
        path.push(os(self.source));
        path
    }

    /// The path in the source, for people.
    pub fn source_path(&self) -> PathBuf {
        let mut path = self.directory.place.source_path();
        path.push(os(self.source));
        path
    }

    /// The path in the destination, for people.
    pub fn destination_path(&self) -> PathBuf {
        let mut path = self.directory.place.destination_path();
        path.push(os(self.name));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_far_deeper_than_the_stack_is_shown_and_dropped() {
        let mut place = Place::root(c"".to_owned(), c"to".to_owned());
        for _ in 0..200_000 {
            let parent = Some(place);
            let source = c"d".to_owned();
            let (name, is_named, here) = (None, false, OnceLock::new());
            place = Arc::new(Place { parent, source, name, is_named, here });
        }
        assert_eq!(place.source_path().as_os_str().len(), 2 * 200_000 - 1);
        assert!(place.destination_path().starts_with("to/d/d"));
        drop(place);
    }
}
