//! The source and destination path of a directory, stored as a chain of single names.
//!
//! Full paths are built only for messages. System calls get one name and a directory descriptor, so the depth is not
//! limited by `PATH_MAX`. A chain may be longer than the stack of a thread, so it is dropped in a loop.

use std::{
    ffi::{CStr, CString},
    path::PathBuf,
    sync::{Arc, OnceLock, Weak},
};

use crate::names::os;

/// The names of one directory in both trees.
#[derive(Debug)]
pub(crate) struct DirectoryPaths<D> {
    parent: Option<Arc<Self>>,
    source: CString,
    // The name in the destination; `None` if it equals the name in the source.
    name: Option<CString>,
    // `true` if the caller named the directory. Paths inside a source are relative to such a directory.
    is_named: bool,
    /// The open destination directory, as long as it is being filled.
    pub here: OnceLock<Weak<D>>,
}

impl<D> DirectoryPaths<D> {
    /// Creates the root: its names are whole paths.
    pub fn root(source: CString, destination: CString) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            source,
            name: Some(destination),
            is_named: true,
            here: OnceLock::new(),
        })
    }

    /// Creates the paths of a directory below another one. `name`: its name in the destination, if that differs.
    pub fn child(
        parent: &Arc<Self>,
        source: &CStr,
        name: Option<CString>,
        is_named: bool,
    ) -> Arc<Self> {
        let (parent, source) = (Some(Arc::clone(parent)), source.to_owned());
        Arc::new(Self { parent, source, name, is_named, here: OnceLock::new() })
    }

    /// Creates the paths of a directory that has one name in both trees.
    pub fn below(parent: &Arc<Self>, name: &CStr) -> Arc<Self> {
        Self::child(parent, name, None, false)
    }

    /// Returns the names in the destination, from below the root down to this directory.
    pub fn names(&self) -> Vec<&CStr> {
        let mut names = Vec::new();
        let mut paths = self;
        while let Some(parent) = &paths.parent {
            names.push(paths.name());
            paths = parent;
        }
        names.reverse();
        names
    }

    /// Returns the name in the destination.
    pub fn name(&self) -> &CStr {
        self.name.as_deref().unwrap_or(&self.source)
    }

    /// Returns the paths of the parent directory.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Returns the source path, for messages.
    pub fn source_path(&self) -> PathBuf {
        self.path(|paths| &paths.source)
    }

    /// Returns the destination path, for messages.
    pub fn destination_path(&self) -> PathBuf {
        self.path(Self::name)
    }

    /// Returns the path below the source that the caller named, or below the root.
    pub fn path_inside(&self, from_root: bool) -> PathBuf {
        let mut parts = Vec::new();
        let mut paths = self;
        while let Some(parent) = paths.parent.as_deref().filter(|_| from_root || !paths.is_named) {
            parts.push(os(paths.name()));
            paths = parent;
        }
        parts.into_iter().rev().filter(|name| *name != ".").collect()
    }

    fn path<'a>(&'a self, part: impl Fn(&'a Self) -> &'a CStr) -> PathBuf {
        let mut parts = vec![part(self)];
        let mut above = self.parent.as_deref();
        while let Some(paths) = above {
            parts.push(part(paths));
            above = paths.parent.as_deref();
        }
        parts.into_iter().rev().map(os).collect()
    }
}

impl<D> Drop for DirectoryPaths<D> {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut paths) = above.and_then(Arc::into_inner) {
            above = paths.parent.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_far_deeper_than_the_stack_is_shown_and_dropped() {
        let mut paths = DirectoryPaths::<()>::root(c"".to_owned(), c"to".to_owned());
        for _ in 0..200_000 {
            let parent = Some(paths);
            let source = c"d".to_owned();
            let (name, is_named, here) = (None, false, OnceLock::new());
            paths = Arc::new(DirectoryPaths { parent, source, name, is_named, here });
        }
        assert_eq!(paths.source_path().as_os_str().len(), 2 * 200_000 - 1);
        assert!(paths.destination_path().starts_with("to/d/d"));
        drop(paths);
    }
}
