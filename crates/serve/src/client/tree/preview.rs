//! Reports what a tree fetch would change, and changes nothing.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, readlinkat};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::Errno;
use thalweg_tree::AttributeDifferences;

use super::{
    account::FetchCounters,
    change::EntryChange,
    directories::DirectoryCache,
    entry::ListedEntry,
    files::{InstallPolicy, OVER_DIRECTORY, compare, has_other_bytes},
    hard_links::preview_names,
    reference::ReferenceTree,
    store::StoredState,
    survey::SurveyedList,
};
use crate::{client::FetchError, manifest::ManifestKind};

/// The directories that a preview compares.
#[derive(Clone, Copy)]
pub struct PreviewRoots<'a> {
    /// The destination, if it exists.
    pub destination: Option<BorrowedFd<'a>>,
    /// An earlier snapshot.
    pub reference: Option<BorrowedFd<'a>>,
}

/// Compares each stored entry with the existing one.
pub fn preview(
    list: &SurveyedList,
    roots: PreviewRoots<'_>,
    install: InstallPolicy<'_>,
    counters: &FetchCounters<'_>,
) -> Result<(), FetchError> {
    let mut directories = roots.destination.map(DirectoryCache::below);
    let mut reference = roots.reference.map(ReferenceTree::below);
    for store in [&list.directories, &list.entries] {
        let mut entries = store.entries();
        while let Some(stored) = entries.next_entry()? {
            let entry = stored.entry;
            if entry.path.is_empty() || stored.state.is(StoredState::SKIPPED) {
                continue;
            }
            counters.check_cancelled()?;
            let change = match &mut directories {
                Some(directories) => change_of(&entry, directories, install),
                None => Ok(Some(EntryChange::created())),
            };
            let is_linked =
                change.as_ref().is_ok_and(|change| *change == Some(EntryChange::created()))
                    && entry.kind.file_type() == FileType::RegularFile
                    && reference.as_mut().is_some_and(|reference| {
                        reference.has_equal(&entry, &install.attributes(&entry.meta, &entry.xattrs))
                    });
            let change = if is_linked {
                counters.referenced();
                Ok(Some(EntryChange::linked(false)))
            } else {
                change
            };
            report(&entry, change, counters);
        }
    }
    preview_names(&list.links, directories, install, counters)
}

fn report(
    entry: &ListedEntry,
    change: Result<Option<EntryChange>, FetchError>,
    counters: &FetchCounters<'_>,
) {
    let (kind, size) = (entry.kind.file_type(), entry.size());
    match change {
        Ok(Some(change)) => counters.changed(&entry.path, kind, size, change),
        Ok(None) if kind == FileType::RegularFile => counters.settled(size, false),
        Ok(None) => {}
        Err(error) => counters.missed(&entry.path, error),
    }
}

fn change_of(
    entry: &ListedEntry,
    directories: &mut DirectoryCache<'_>,
    install: InstallPolicy<'_>,
) -> Result<Option<EntryChange>, FetchError> {
    let directory = match directories.open(entry.directory()) {
        Err(CallFailed { errno: Errno::NOENT | Errno::NOTDIR | Errno::LOOP, .. }) => {
            return Ok(Some(EntryChange::created()));
        }
        opened => opened?,
    };
    let name = entry.name();
    let Some(there) = directory.look(&name)? else { return Ok(Some(EntryChange::created())) };
    let kind = FileType::from_raw_mode(there.st_mode);
    match (&entry.kind, kind) {
        (ManifestKind::Directory { .. }, FileType::Directory) => Ok(None),
        (ManifestKind::Directory { .. }, _) => {
            Err(FetchError::listed("cannot overwrite non-directory with directory"))
        }
        (_, FileType::Directory) => Err(FetchError::listed(OVER_DIRECTORY)),
        (ManifestKind::File(file), _) => {
            let differs = compare(
                &there,
                file.size,
                &install.attributes(&entry.meta, &entry.xattrs),
                &directory,
                &name,
            );
            Ok(if has_other_bytes(differs, true) {
                Some(EntryChange::replaced(differs))
            } else {
                differs.any().then(|| EntryChange::adjusted(differs))
            })
        }
        (ManifestKind::Link(target), FileType::Symlink) => {
            let has = readlinkat(&directory.fd, &name, Vec::new()).map_err(failed("readlinkat"))?;
            let differs = AttributeDifferences { content: true, ..AttributeDifferences::default() };
            Ok((*has != **target).then(|| EntryChange::replaced(differs)))
        }
        (ManifestKind::Link(_), _) => {
            let differs = AttributeDifferences { kind: true, ..AttributeDifferences::default() };
            Ok(Some(EntryChange::replaced(differs)))
        }
    }
}
