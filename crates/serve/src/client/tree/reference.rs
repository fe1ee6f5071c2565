//! An earlier snapshot. A new file that equals one of its files becomes a hard link to that file.

use std::{
    ffi::CStr,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, openat};
use thalweg_core::{atomic_file::failed, failed::quoted};
use thalweg_tree::install::EntryAttributes;

use super::{
    compare::compare,
    directories::{DirectoryCache, TreeDirectory},
    entry::ListedEntry,
    files::WantedFile,
    hard_links::ExistingEntry,
};
use crate::client::FetchError;

/// The files of an earlier snapshot.
pub struct ReferenceTree<'a>(DirectoryCache<'a>);

/// Opens the directory of the snapshot.
pub fn open(path: &Path) -> Result<OwnedFd, FetchError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    opened.map_err(|errno| {
        FetchError::Usage(format!("--reference: {}: {}", quoted(path), failed("openat")(errno)))
    })
}

/// Creates a new file as a link to the equal file of the snapshot. Returns `false` if the file is not new, if no file
/// is equal, or if the file system refuses.
pub fn link(
    reference: &mut Option<ReferenceTree<'_>>,
    entry: &ListedEntry,
    wanted: &WantedFile,
) -> Result<bool, FetchError> {
    let link = |file: &ExistingEntry<'_>| file.link(&wanted.directory, &wanted.name, false, None);
    match reference.as_mut().filter(|_| wanted.replaces.is_none()) {
        Some(tree) => tree.with_equal(entry, &wanted.attributes, link).unwrap_or(Ok(false)),
        None => Ok(false),
    }
}

impl<'a> ReferenceTree<'a> {
    pub fn below(root: BorrowedFd<'a>) -> Self {
        Self(DirectoryCache::below(root))
    }

    /// Returns `true` if the snapshot has an equal file.
    pub fn has_equal(&mut self, entry: &ListedEntry, attributes: &EntryAttributes) -> bool {
        self.with_equal(entry, attributes, |_| ()).is_some()
    }

    /// Calls `use_file` with the equal file, if there is one. Sizes, times and attributes are compared.
    fn with_equal<T>(
        &mut self,
        entry: &ListedEntry,
        attributes: &EntryAttributes,
        use_file: impl FnOnce(&ExistingEntry<'_>) -> T,
    ) -> Option<T> {
        let directory: &TreeDirectory = &*self.0.open(entry.directory()).ok()?;
        let name: &CStr = &entry.name();
        let stat = directory.look(name).ok()??;
        let differs = compare(&stat, entry.size(), attributes, directory, name);
        (!differs.any()).then(|| use_file(&ExistingEntry { directory, name, stat }))
    }
}
