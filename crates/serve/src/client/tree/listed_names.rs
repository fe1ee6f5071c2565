//! The names in a list, for the deletion of entries that the server does not have.

use std::{
    collections::HashMap,
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
    entry::{ListedKind, ParsedLine, parse},
    list::{EntryList, ListLines},
};
use crate::client::FetchError;

/// The names in a list. Only the directories are in memory.
pub struct ListedNames<'a> {
    /// Directories, each with the offset of its first entry in the list.
    directories: HashMap<Vec<u8>, DirectoryLines>,
    lines: Mutex<ListLines<'a>>,
}

/// Position of the entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryLines {
    From(u64),
    /// The directory has no entries.
    None,
    /// The server may not read the directory.
    Unknown,
}

impl<'a> ListedNames<'a> {
    /// Reads the list once.
    pub fn of(list: &'a EntryList) -> Result<Self, FetchError> {
        let mut directories = HashMap::new();
        let mut lines = list.lines();
        let mut current: Option<Vec<u8>> = None;
        loop {
            let at = lines.offset();
            let Some(line) = lines.next_line()? else { break };
            let Ok(ParsedLine::Entry(entry)) = parse(line) else { continue };
            if !entry.path.is_empty() && current.as_deref() != Some(entry.directory()) {
                let directory = entry.directory().to_vec();
                directories.insert(directory.clone(), DirectoryLines::From(at));
                current = Some(directory);
            }
            if entry.kind == ListedKind::Directory {
                let lines =
                    if entry.is_unread { DirectoryLines::Unknown } else { DirectoryLines::None };
                directories.insert(entry.path, lines);
            }
        }
        Ok(Self { directories, lines: Mutex::new(list.lines()) })
    }

    fn names(&self, directory: &[u8], from: u64) -> Result<SourceListing, FetchError> {
        let mut listing = SourceListing::default();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.seek(from);
        while let Some(line) = lines.next_line()? {
            let Ok(ParsedLine::Entry(entry)) = parse(line) else { break };
            if entry.directory() != directory {
                break;
            }
            let is_directory = entry.kind == ListedKind::Directory;
            listing.names.insert(entry.name_bytes().into(), is_directory);
        }
        Ok(listing)
    }
}

impl SourceNames for ListedNames<'_> {
    fn list(&self, directory: &[u8]) -> Result<SourceListing, Error> {
        let path = || PathBuf::from(OsStr::from_bytes(directory));
        let unknown = |errno| Error::Call { path: path(), call: "openat", errno, bytes: 0 };
        match self.directories.get(directory) {
            Some(DirectoryLines::From(from)) => {
                self.names(directory, *from).map_err(|_| unknown(Errno::IO))
            }
            Some(DirectoryLines::None) => Ok(SourceListing::default()),
            Some(DirectoryLines::Unknown) | None => Err(unknown(Errno::ACCESS)),
        }
    }

    fn identity(&self) -> Option<String> {
        None
    }
}
