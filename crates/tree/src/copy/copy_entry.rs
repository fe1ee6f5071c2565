//! An entry to copy: its source and its destination.

use std::{ffi::CStr, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use crate::{
    CopyOptions, Error,
    copy::directory::Directory,
    error::{Attempt, CopyFailure, at_source},
    fs::{cached::CachedDirectory, list::DirectoryHandle},
    names::os,
    paths::DirectoryPaths,
};

/// A source directory, in which entries are opened by name.
#[derive(Clone, Debug)]
pub(crate) enum SourceDirectory {
    /// The current directory. Names are paths as the caller gave them.
    Caller,
    /// The parent directory of an entry that the caller named by a path. Names are the last components of such paths.
    Named(Arc<OwnedFd>),
    /// A directory that the walk entered. Names are its entries.
    Listed(Arc<CachedDirectory>),
}

impl SourceDirectory {
    /// Returns the open directory.
    pub fn open(&self) -> Attempt<DirectoryHandle> {
        match self {
            Self::Caller => Ok(DirectoryHandle::Caller),
            Self::Named(fd) => Ok(DirectoryHandle::Listed(Arc::clone(fd))),
            Self::Listed(folder) => {
                folder.open().map(DirectoryHandle::Listed).map_err(at_source("openat"))
            }
        }
    }

    /// Returns the directory if the walk entered it.
    pub fn folder(&self) -> Option<&Arc<CachedDirectory>> {
        match self {
            Self::Caller | Self::Named(_) => None,
            Self::Listed(folder) => Some(folder),
        }
    }

    /// Returns `true` if the entries that are opened here were named by the caller.
    pub fn is_named(&self) -> bool {
        !matches!(self, Self::Listed(_))
    }
}

/// An entry to copy: its name in a source directory, and the name it gets in a destination directory.
#[derive(Clone, Copy)]
pub(crate) struct CopyEntry<'a> {
    pub directory: &'a Arc<Directory>,
    pub from: &'a SourceDirectory,
    /// The name in `from`.
    pub source: &'a CStr,
    /// The name in `directory`.
    pub name: &'a CStr,
}

impl CopyEntry<'_> {
    /// Returns `true` if the caller named the entry; `false` if the walk found it in a directory.
    pub fn named_by_caller(&self) -> bool {
        self.from.is_named()
    }

    /// Returns the path that a filter sees: relative to the source that the caller named, or to the root.
    pub fn path_inside(&self, from_root: bool) -> PathBuf {
        let mut path = self.directory.paths.path_inside(from_root);
        path.push(os(self.source));
        path
    }

    /// Returns the path below the destination of a sync.
    pub fn path_below(&self, options: &CopyOptions) -> PathBuf {
        let has_entries = options.sync.is_some_and(|rules| rules.has_entries);
        if self.named_by_caller() && !has_entries {
            return PathBuf::from(".");
        }
        let mut path = self.directory.paths.path_inside(has_entries);
        path.push(os(self.name));
        path
    }

    /// Returns the paths of the entry if it is a directory.
    pub fn paths(&self) -> Arc<DirectoryPaths<Directory>> {
        let name = (self.source != self.name).then(|| self.name.to_owned());
        DirectoryPaths::child(&self.directory.paths, self.source, name, self.named_by_caller())
    }

    /// Adds the paths of the entry to a failure.
    pub fn error(&self, failure: CopyFailure) -> Error {
        failure.at(|| self.source_path(), || self.destination_path())
    }

    /// Returns the source path, for messages.
    pub fn source_path(&self) -> PathBuf {
        let mut path = self.directory.paths.source_path();
        path.push(os(self.source));
        path
    }

    /// Returns the destination path, for messages.
    pub fn destination_path(&self) -> PathBuf {
        let mut path = self.directory.paths.destination_path();
        path.push(os(self.name));
        path
    }
}
