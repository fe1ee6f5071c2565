//! The names in a list, for the deletion of entries that the server does not have.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use thalweg_sys::Errno;
use thalweg_tree::{
    Error,
    sync::{SourceListing, SourceNames},
};

use super::{
    entry::ListedEntry,
    list::{EntryList, ListRecords, broken},
};
use crate::{
    client::FetchError,
    manifest::{DirectoryContents, ListRecord, ManifestKind},
};

/// The names in a list. Only the directories are in memory.
pub struct ListedNames<'a> {
    directories: HashMap<Vec<u8>, DirectoryGroup>,
    /// `true` if the filters exclude entries. A directory without listed entries is then not necessarily empty.
    has_excluded: bool,
    list: &'a EntryList,
    records: Mutex<ListRecords<'a>>,
}

/// Position of the entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryGroup {
    From(u64),
    /// The server has no permission to read the directory.
    Unknown,
    /// The directory is on another file system, so that its entries do not belong to the sync.
    Elsewhere,
}

impl<'a> ListedNames<'a> {
    /// Reads the list once. The list was already checked.
    pub fn of(list: &'a EntryList) -> Result<Self, FetchError> {
        let (mut directories, mut waiting) = (HashMap::new(), VecDeque::new());
        let (mut records, mut current) = (list.records(), Vec::new());
        let has_excluded = loop {
            match next(&mut records)? {
                ListRecord::Group(_) => {
                    current = waiting.pop_front().unwrap_or_default();
                    directories.insert(current.clone(), DirectoryGroup::From(records.offset()));
                }
                ListRecord::Entry(entry) => {
                    let ManifestKind::Directory(contents) = entry.kind else { continue };
                    let path = ListedEntry::of(&current, entry).map_err(broken)?.path;
                    match contents {
                        DirectoryContents::Listed => waiting.push_back(path),
                        DirectoryContents::Unreadable => {
                            directories.insert(path, DirectoryGroup::Unknown);
                        }
                        DirectoryContents::Elsewhere => {
                            directories.insert(path, DirectoryGroup::Elsewhere);
                        }
                    }
                }
                ListRecord::End(totals) => break totals.excluded > 0,
            }
        };
        Ok(Self { directories, has_excluded, list, records: Mutex::new(list.records()) })
    }

    fn names(&self, from: u64) -> Result<SourceListing, FetchError> {
        let has_excluded = self.has_excluded;
        let mut listing = SourceListing { has_excluded, ..SourceListing::default() };
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.seek(from);
        while let ListRecord::Entry(entry) = next(&mut records)? {
            let is_directory = matches!(entry.kind, ManifestKind::Directory(_));
            listing.names.insert(entry.name.into(), is_directory);
        }
        Ok(listing)
    }
}

/// Returns the next record of a list that was checked before.
fn next(records: &mut ListRecords<'_>) -> Result<ListRecord, FetchError> {
    match records.next_record() {
        Ok(Some(record)) => Ok(record),
        Ok(None) | Err(FetchError::Broken(_)) => Err(FetchError::ListChanged),
        Err(error) => Err(error),
    }
}

impl SourceNames for ListedNames<'_> {
    fn list(&self, directory: &[u8]) -> Result<SourceListing, Error> {
        let path = || PathBuf::from(OsStr::from_bytes(directory));
        let unknown = |errno| Error::Call { path: path(), call: "openat", errno, bytes: 0 };
        match self.directories.get(directory) {
            Some(DirectoryGroup::From(from)) => self.names(*from).map_err(|_| unknown(Errno::IO)),
            Some(DirectoryGroup::Elsewhere) => Ok(SourceListing::keep_all()),
            Some(DirectoryGroup::Unknown) | None => Err(unknown(Errno::ACCESS)),
        }
    }

    fn identity(&self) -> Option<String> {
        self.list.source.clone()
    }
}
