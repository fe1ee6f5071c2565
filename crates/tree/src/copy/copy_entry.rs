//! An entry to copy: its source and its destination.

use std::{ffi::CStr, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use crate::{
    Error,
    copy::directory::Directory,
    error::{Attempt, Failure, at_source},
    folder::Folder,
    listing::Opened,
    names::os,
    paths::Paths,
};

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

/// An entry to copy: its name in a source directory, and the name it gets in a destination directory.
#[derive(Clone, Copy)]
pub(crate) struct CopyEntry<'a> {
    /// The destination directory.
    pub directory: &'a Arc<Directory>,
    /// The source directory.
    pub from: &'a Origin,
    /// The name in the source directory.
    pub source: &'a CStr,
    /// The name in the destination directory.
    pub name: &'a CStr,
}

impl CopyEntry<'_> {
    /// Whether the caller named it, so that it was not met in a directory.
    pub fn named_by_caller(&self) -> bool {
        self.from.is_named()
    }

    /// The path of an entry for a filter: inside the source that the caller named, or below the root.
    pub fn path_inside(&self, from_root: bool) -> PathBuf {
        let mut path = self.directory.paths.path_inside(from_root);
        path.push(os(self.source));
        path
    }

    /// Its names, if it is a directory.
    pub fn paths(&self) -> Arc<Paths<Directory>> {
        let name = (self.source != self.name).then(|| self.name.to_owned());
        Paths::child(&self.directory.paths, self.source, name, self.named_by_caller())
    }

    /// What went wrong with it, with its paths.
    pub fn error(&self, failure: Failure) -> Error {
        failure.at(|| self.source_path(), || self.destination_path())
    }

    /// The path in the source, for people.
    pub fn source_path(&self) -> PathBuf {
        let mut path = self.directory.paths.source_path();
        path.push(os(self.source));
        path
    }

    /// The path in the destination, for people.
    pub fn destination_path(&self) -> PathBuf {
        let mut path = self.directory.paths.destination_path();
        path.push(os(self.name));
        path
    }
}
