//! Reports what a tree fetch would change, and changes nothing.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::FileType;
use thalweg_core::atomic_file::CallFailed;
use thalweg_sys::Errno;
use thalweg_tree::AttributeDifferences;

use super::{
    account::FetchCounters,
    asking,
    change::EntryChange,
    compare::{compare, compare_directory, compare_node, has_other_bytes},
    directories::DirectoryCache,
    entry::ListedEntry,
    files::{FileDecision, InstallPolicy, OVER_DIRECTORY, OVER_OTHER, WantedFile},
    hard_links::preview_names,
    hash_checks::HashChecks,
    job::TreeJob,
    reference::ReferenceTree,
    store::{EntryStore, StoredState},
    survey::SurveyedList,
};
use crate::{client::FetchError, manifest::ManifestKind};

/// Maximum number of files that wait for their hashes. Each of them keeps its directory open.
const MOST_WAITING: usize = 2 * asking::MOST;

/// The directories that a preview compares.
#[derive(Clone, Copy)]
pub struct PreviewRoots<'a> {
    /// The destination, if it exists.
    pub destination: Option<BorrowedFd<'a>>,
    /// The destination, or the directory that will contain it.
    pub beside: BorrowedFd<'a>,
    /// An earlier snapshot. Its files may be linked.
    pub reference: Option<BorrowedFd<'a>>,
}

/// Compares each entry in `stores`, and each pair in `links`, with the existing entry.
pub fn preview(
    list: &SurveyedList,
    stores: &[&EntryStore],
    links: &EntryStore,
    roots: PreviewRoots<'_>,
    job: &TreeJob<'_>,
) -> Result<(), FetchError> {
    let (install, counters) = (job.install, job.account);
    let (mut checks, mut replaced) = (HashChecks::new(job), HashSet::new());
    let mut directories = roots.destination.map(DirectoryCache::below);
    let mut reference = roots.reference.map(ReferenceTree::below);
    for store in stores {
        let mut entries = store.entries();
        while let Some(stored) = entries.next_entry()? {
            let entry = stored.entry;
            let root = roots.destination.unwrap_or(roots.beside);
            if entry.path.is_empty()
                && let Some(change) = list.change_of_top(&entry, root, install)
            {
                counters.changed(b".", FileType::Directory, 0, change);
            }
            if entry.path.is_empty() || stored.state.is(StoredState::SKIPPED) {
                continue;
            }
            counters.check_cancelled()?;
            let change = match &mut directories {
                Some(directories) => match change_of(&entry, directories, install) {
                    Ok(Foreseen::Check(file)) => {
                        checks.push(*file);
                        if checks.len() > MOST_WAITING {
                            checks.preview_first(job, &mut replaced)?;
                        }
                        continue;
                    }
                    Ok(Foreseen::Change(change)) => Ok(change),
                    Err(error) => Err(error),
                },
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
    while !checks.is_empty() {
        checks.preview_first(job, &mut replaced)?;
    }
    checks.release();
    preview_names(links, directories, &replaced, install, counters)
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

/// The change that a fetch would make.
enum Foreseen {
    /// The change; `None` if the entry is unchanged.
    Change(Option<EntryChange>),
    /// The hash of the file decides.
    Check(Box<WantedFile>),
}

fn change_of(
    entry: &ListedEntry,
    directories: &mut DirectoryCache<'_>,
    install: InstallPolicy<'_>,
) -> Result<Foreseen, FetchError> {
    let created = || Ok(Foreseen::Change(Some(EntryChange::created())));
    let directory = match directories.open(entry.directory()) {
        Err(CallFailed { errno: Errno::NOENT | Errno::NOTDIR | Errno::LOOP, .. }) => {
            return created();
        }
        opened => opened?,
    };
    let name = entry.name();
    let Some(there) = directory.look(&name)? else { return created() };
    let kind = FileType::from_raw_mode(there.st_mode);
    let attributes = install.attributes(&entry.meta, &entry.xattrs);
    let adjusted = |differs: AttributeDifferences| {
        Ok(Foreseen::Change(differs.any().then(|| EntryChange::adjusted(differs))))
    };
    match (&entry.kind, kind) {
        (ManifestKind::Directory(_), FileType::Directory) => {
            adjusted(compare_directory(&there, &attributes, directory.fd.as_fd(), &name))
        }
        (ManifestKind::Directory(_), _) if install.over_others => created(),
        (ManifestKind::Directory(_), _) => Err(FetchError::listed(OVER_OTHER)),
        (_, FileType::Directory) if install.is_directory_gone => created(),
        (_, FileType::Directory) => Err(FetchError::listed(OVER_DIRECTORY)),
        (ManifestKind::File(file), _) => {
            let differs = compare(&there, file.size, &attributes, &directory, &name);
            if has_other_bytes(differs, !install.by_hash) {
                return Ok(Foreseen::Change(Some(install.replacement(differs))));
            }
            if !install.by_hash && !install.verify {
                return adjusted(differs);
            }
            match install.wanted(entry, file, directory)? {
                FileDecision::Wanted(file) => Ok(Foreseen::Check(Box::new(file))),
                FileDecision::Unchanged | FileDecision::Adjusted { .. } => {
                    Ok(Foreseen::Change(None))
                }
            }
        }
        (ManifestKind::Link(_) | ManifestKind::Special(_), _) => {
            let differs = compare_node(&there, &entry.kind, &attributes, &directory, &name)?;
            Ok(Foreseen::Change(differs.any().then(|| EntryChange::of_node(differs))))
        }
    }
}
