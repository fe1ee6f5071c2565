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
    entry::{ListedEntry, is_reserved_name},
    list::{EntryList, ListRecords, broken},
};
use crate::{
    client::FetchError,
    manifest::{DirectoryContents, ListRecord, ManifestKind},
};

/// Largest memory of the directories of a list, in bytes.
const MOST_HELD: usize = 1 << 30;
/// Memory of a directory without its path, in bytes. A hash table may be half empty.
const DIRECTORY: usize = 2 * size_of::<(Vec<u8>, DirectoryGroup)>();

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
    /// Reads the list once. The list was already checked. Fails if its directories need more than 1 GiB of memory.
    pub fn of(list: &'a EntryList) -> Result<Self, FetchError> {
        Self::within(list, MOST_HELD)
    }

    /// Reads the list. `most`: largest memory of its directories, in bytes.
    fn within(list: &'a EntryList, most: usize) -> Result<Self, FetchError> {
        // A deletion never enters a directory with a reserved name, so the paths in it are `None`.
        let (mut directories, mut waiting) = (HashMap::new(), VecDeque::new());
        let (mut records, mut current, mut held) = (list.records(), Some(Vec::new()), 0);
        let has_excluded = loop {
            match next(&mut records)? {
                ListRecord::Group(_) => {
                    current = waiting.pop_front().flatten();
                    if let Some(path) = current.clone() {
                        directories.insert(path, DirectoryGroup::From(records.offset()));
                    }
                }
                ListRecord::Entry(entry) => {
                    let ManifestKind::Directory(contents) = entry.kind else { continue };
                    let above = current.as_ref().filter(|_| !is_reserved_name(&entry.name));
                    let path = above.map(|above| ListedEntry::of(above, entry)).transpose();
                    let path = path.map_err(broken)?.map(|entry| entry.path);
                    held += DIRECTORY + path.as_ref().map_or(0, Vec::len);
                    if held > most {
                        return Err(broken("it has too many directories for a deletion"));
                    }
                    match (contents, path) {
                        (DirectoryContents::Listed, path) => waiting.push_back(path),
                        (DirectoryContents::Unreadable, Some(path)) => {
                            directories.insert(path, DirectoryGroup::Unknown);
                        }
                        (DirectoryContents::Elsewhere, Some(path)) => {
                            directories.insert(path, DirectoryGroup::Elsewhere);
                        }
                        (_, None) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{GroupFilter, ListTotals, ManifestEntry, Meta, RecordWriter};
    use std::{fs::File, os::fd::AsFd};
    use thalweg_sys::io;

    /// Returns the list of the directories `.x.thalweg-part`, `.x.thalweg-part/y`, `d` and `d/e`.
    fn list() -> EntryList {
        let folder = |name: &str| ManifestEntry {
            name: name.into(),
            kind: ManifestKind::Directory(DirectoryContents::Listed),
            shared_node: None,
            meta: Meta { mode: 0o755, uid: 0, gid: 0, mtime: 1, nanos: 0 },
            xattrs: thalweg_tree::install::EntryXattrs::default(),
        };
        let (mut out, mut writer) = (Vec::new(), RecordWriter::default());
        RecordWriter::begin(&mut out);
        RecordWriter::default().entry(&mut out, &folder(""));
        for names in [&[".x.thalweg-part", "d"][..], &["y"], &["e"], &[], &[]] {
            writer.group(&mut out, &GroupFilter::NotRequested);
            for name in names {
                writer.entry(&mut out, &folder(name));
            }
        }
        RecordWriter::end(&mut out, &ListTotals { entries: 5, ..ListTotals::default() });
        let place = tempfile::tempdir().unwrap();
        let list = EntryList::create(File::open(place.path()).unwrap().as_fd()).unwrap();
        assert_eq!(io::write(list.fd(), &out), Ok(out.len()));
        list
    }

    #[test]
    fn directories_with_a_reserved_name_are_not_in_memory() {
        let list = list();
        let names = ListedNames::of(&list).unwrap();
        let mut held: Vec<_> = names.directories.keys().map(|path| &path[..]).collect();
        held.sort_unstable();
        assert_eq!(held, [&b""[..], b"d", b"d/e"]);
        assert!(names.list(b"d").unwrap().names.contains_key(&b"e"[..]));
        assert!(names.list(b"d/e").unwrap().names.is_empty());
        assert!(names.list(b".x.thalweg-part").is_err());
    }

    #[test]
    fn too_many_directories_are_an_error() {
        let list = list();
        let enough = 5 * DIRECTORY + "dd/e".len();
        assert!(ListedNames::within(&list, enough).is_ok());
        let error = ListedNames::within(&list, enough - 1).err().unwrap();
        assert!(error.to_string().contains("too many directories"), "{error}");
    }
}
