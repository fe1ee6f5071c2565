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
    entry::{ListedEntry, ListedKind, ParsedLine, parse},
    files::{InstallPolicy, OVER_DIRECTORY, compare, has_other_bytes},
    list::EntryList,
};
use crate::client::FetchError;

/// Compares each entry of the list with the existing one. `root`: the destination, if it exists.
pub fn preview(
    list: &EntryList,
    root: Option<BorrowedFd<'_>>,
    install: InstallPolicy,
    counters: &FetchCounters<'_>,
) -> Result<(), FetchError> {
    let mut directories = root.map(DirectoryCache::below);
    let mut lines = list.lines();
    while let Some(line) = lines.next_line()? {
        let Ok(ParsedLine::Entry(entry)) = parse(line) else { continue };
        if entry.path.is_empty() || entry.is_reserved() {
            continue;
        }
        counters.check_cancelled()?;
        let change = match &mut directories {
            Some(directories) => change_of(&entry, directories, install),
            None => Ok(Some(EntryChange::created())),
        };
        let (kind, size) = match &entry.kind {
            ListedKind::File { size, .. } => (FileType::RegularFile, *size),
            ListedKind::Directory => (FileType::Directory, 0),
            ListedKind::Link(_) => (FileType::Symlink, 0),
        };
        match change {
            Ok(Some(change)) => counters.changed(&entry.path, kind, size, change),
            Ok(None) if kind == FileType::RegularFile => counters.settled(size, false),
            Ok(None) => {}
            Err(error) => counters.missed(&entry.path, error),
        }
    }
    Ok(())
}

fn change_of(
    entry: &ListedEntry,
    directories: &mut DirectoryCache<'_>,
    install: InstallPolicy,
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
        (ListedKind::Directory, FileType::Directory) => Ok(None),
        (ListedKind::Directory, _) => {
            Err(FetchError::listed("cannot overwrite non-directory with directory"))
        }
        (_, FileType::Directory) => Err(FetchError::listed(OVER_DIRECTORY)),
        (ListedKind::File { size, .. }, _) => {
            let differs = compare(&there, *size, &install.attributes(&entry.meta), &directory);
            Ok(if has_other_bytes(differs, true) {
                Some(EntryChange::replaced(differs))
            } else {
                differs.any().then(|| EntryChange::adjusted(differs))
            })
        }
        (ListedKind::Link(target), FileType::Symlink) => {
            let has = readlinkat(&directory.fd, &name, Vec::new()).map_err(failed("readlinkat"))?;
            let differs = AttributeDifferences { content: true, ..AttributeDifferences::default() };
            Ok((*has != **target).then(|| EntryChange::replaced(differs)))
        }
        (ListedKind::Link(_), _) => {
            let differs = AttributeDifferences { kind: true, ..AttributeDifferences::default() };
            Ok(Some(EntryChange::replaced(differs)))
        }
    }
}
