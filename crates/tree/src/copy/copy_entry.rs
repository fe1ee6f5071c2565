//! An entry to copy: its source and its destination.

use rustix::fs::Stat;
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
};

use crate::{
    CopyOptions, Error, Preserve,
    copy::{
        attributes::{WantedAttributes, apply_attributes},
        directory::Directory,
        run::CopyRun,
    },
    error::{Attempt, CopyFailure, at_source},
    fs::{
        cached::CachedDirectory,
        list::{DirectoryHandle, stat_at},
    },
    holder::Holder,
    names::os,
    paths::DirectoryPaths,
    xattrs::EntryXattrs,
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

/// An open source file, and its attributes as they were when it was opened.
#[derive(Clone, Copy)]
pub(crate) struct SourceFile<'a> {
    pub fd: &'a OwnedFd,
    pub stat: &'a Stat,
}

impl SourceFile<'_> {
    /// Reads the extended attributes and ACLs that `keep` selects.
    pub fn xattrs(&self, keep: Preserve) -> Attempt<EntryXattrs> {
        EntryXattrs::from(&Holder::Fd(self.fd.as_fd()), keep)
    }
}

/// An entry that is stored until a worker copies it. It counts as pending work in its directory.
#[derive(Debug)]
pub(crate) struct QueuedEntry {
    pub directory: Arc<Directory>,
    pub from: SourceDirectory,
    pub source: CString,
    pub name: CString,
}

impl QueuedEntry {
    pub fn entry(&self) -> CopyEntry<'_> {
        let Self { directory, from, source, name } = self;
        CopyEntry { directory, from, source, name }
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
    /// Stores the entry as one more piece of pending work in its directory.
    pub fn queued(&self) -> QueuedEntry {
        self.directory.expect_one_more();
        QueuedEntry {
            directory: Arc::clone(self.directory),
            from: self.from.clone(),
            source: self.source.to_owned(),
            name: self.name.to_owned(),
        }
    }

    /// Returns the attributes of the source. `follows`: `true` if a symbolic link is followed.
    pub fn stat(&self, follows: bool) -> Attempt<Stat> {
        stat_at(self.from.open()?, self.source, follows).map_err(at_source("newfstatat"))
    }

    /// Applies all attributes to the copy of the entry.
    pub fn apply_attributes(
        &self,
        run: &CopyRun<'_>,
        copy: Holder<'_>,
        xattrs: &EntryXattrs,
        stat: &Stat,
        wanted: &WantedAttributes,
    ) -> Attempt<()> {
        apply_attributes(run, copy, &|| self.destination_path(), xattrs, stat, wanted)
    }

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
