//! Compares the entries of a list with the destination while the list is received, and changes nothing. It stores only
//! the directories and the entries that differ. In a repeated fetch, most entries are unchanged and need no more work.

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    rc::Rc,
};

use rustix::fs::Stat;
use thalweg_core::shown;
use thalweg_tree::Total;

use super::{
    change::EntryChange,
    compare::{compare, compare_directory, compare_node},
    directories::{DirectoryCache, TreeDirectory, is_directory},
    entry::{ListedEntry, is_reserved_name, stays_inside},
    files::InstallPolicy,
    hard_links::{FirstName, FirstNames},
    list::{EntryList, ListRecords, broken},
    listed_filter::ListedFilter,
    options::TreeOptions,
    outcome::TreeFetched,
    store::{EntryStore, StoreCursor, StoredState},
};
use crate::{
    client::FetchError,
    manifest::{DirectoryContents, InodeId, ListCheck, ListRecord, ManifestEntry, ManifestKind},
};

/// A list that was received completely, and what remains to be done.
pub struct SurveyedList {
    /// The directory itself, and all directories below it.
    pub directories: EntryStore,
    pub changed: ChangedEntries,
    /// Changed entries that wait until the deletion has removed the directories that they replace.
    pub deferred: ChangedEntries,
    pub check: ListCheck,
    /// Entries with names that are reserved for partial files.
    pub reserved: u64,
    pub filter: ListedFilter,
    /// Entries that the filters exclude although the server lists them, and files beyond the limits.
    pub excluded: u64,
    /// Listed files that are not fetched, including those below excluded directories.
    pub skipped: Total,
    /// Files that exist in the destination as the server lists them.
    pub unchanged: Total,
    /// The destination before the fetch, if it existed.
    pub top: Option<Stat>,
    /// `true` if an existing destination keeps its attributes ([`TreeOptions::only`]).
    pub keeps_top: bool,
}

/// Files and links that differ or do not exist.
pub struct ChangedEntries {
    pub entries: EntryStore,
    /// Names that become hard links, each followed by the first name of its file.
    pub links: EntryStore,
}

impl ChangedEntries {
    fn create(beside: BorrowedFd<'_>) -> Result<Self, FetchError> {
        let entries = EntryStore::create(beside, c"entries".to_owned())?;
        Ok(Self { entries, links: EntryStore::create(beside, c"links".to_owned())? })
    }

    /// Returns the size of all records, in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes() + self.links.bytes()
    }

    fn flush(&mut self) -> Result<(), FetchError> {
        self.entries.flush()?;
        self.links.flush()
    }
}

impl SurveyedList {
    /// Returns the change of the destination itself, if it is new, or if its attributes differ from the listed ones.
    /// `root`: the destination, if it existed.
    pub fn change_of_top(
        &self,
        entry: &ListedEntry,
        root: BorrowedFd<'_>,
        install: InstallPolicy<'_>,
    ) -> Option<EntryChange> {
        let Some(top) = &self.top else { return Some(EntryChange::created()) };
        if self.keeps_top {
            return None;
        }
        let attributes = install.attributes(&entry.meta, &entry.xattrs);
        let differs = compare_directory(top, &attributes, root, c".");
        differs.any().then(|| EntryChange::adjusted(differs))
    }

    /// Adds the entries that are not fetched to the outcome.
    pub fn count_missing(&self, fetched: &mut TreeFetched) {
        fetched.left_out = self.left_out();
        fetched.excluded = self.check.totals.excluded + self.excluded;
    }

    /// Returns the number of entries that the server did not list, or that have reserved names.
    pub fn left_out(&self) -> u64 {
        self.check.totals.left_out + self.reserved
    }
}

/// State of a comparison of the received list with the destination.
pub struct TreeSurvey<'a> {
    records: ListRecords<'a>,
    found: SurveyedList,
    /// Reads the directories in the order of their groups.
    cursor: StoreCursor,
    group: GroupDirectory,
    first_names: FirstNames,
    /// The destination, if it exists.
    existing: Option<DirectoryCache<'a>>,
    install: InstallPolicy<'a>,
    options: &'a TreeOptions,
}

/// The directory of the current group.
#[derive(Default)]
struct GroupDirectory {
    path: Vec<u8>,
    /// `None` if it does not exist.
    opened: Option<Rc<TreeDirectory>>,
    state: StoredState,
    /// File offset of its record.
    at: u64,
}

impl<'a> TreeSurvey<'a> {
    /// Begins a comparison. `beside`: a directory for unnamed files. `existing`: the destination, if it exists.
    pub fn of(
        list: &'a EntryList,
        beside: BorrowedFd<'_>,
        existing: Option<BorrowedFd<'a>>,
        install: InstallPolicy<'a>,
        options: &'a TreeOptions,
    ) -> Result<Self, FetchError> {
        let found = SurveyedList {
            directories: EntryStore::create(beside, c"directories".to_owned())?,
            changed: ChangedEntries::create(beside)?,
            deferred: ChangedEntries::create(beside)?,
            check: ListCheck::default(),
            reserved: 0,
            filter: ListedFilter::of(options),
            excluded: 0,
            skipped: Total::default(),
            unchanged: Total::default(),
            top: None,
            keeps_top: options.only.is_some(),
        };
        Ok(Self {
            records: list.records(),
            found,
            cursor: StoreCursor::default(),
            group: GroupDirectory::default(),
            first_names: FirstNames::default(),
            existing: existing.map(DirectoryCache::below),
            install,
            options,
        })
    }

    /// Compares the entries that were received since the last call. Returns `false` if the stored entries are larger
    /// than the list may be.
    pub fn advance(&mut self) -> Result<bool, FetchError> {
        while let Some(record) = self.records.next_record()? {
            self.found.check.add(&record).map_err(broken)?;
            match record {
                ListRecord::Entry(entry) => self.entry(entry)?,
                ListRecord::Group(filter) => {
                    self.enter()?;
                    self.found.filter.add(&self.group.path, &filter)?;
                }
                ListRecord::End(_) => {}
            }
            let SurveyedList { directories, changed, deferred, .. } = &self.found;
            let stored = directories.bytes() + changed.bytes() + deferred.bytes();
            if stored > self.options.most_list {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the comparison. Fails unless the list is complete.
    pub fn finish(mut self) -> Result<SurveyedList, FetchError> {
        if !self.advance()? {
            return Err(FetchError::broken("the list of files is too long; raise --max-list"));
        }
        match (self.found.check.is_complete(), self.records.has_rest()) {
            (true, false) => {}
            (true, true) => return Err(broken("bytes follow the last record")),
            (false, _) => return Err(FetchError::broken("the list of files is incomplete")),
        }
        self.found.directories.flush()?;
        self.found.changed.flush()?;
        self.found.deferred.flush()?;
        Ok(self.found)
    }

    /// Begins the group of the next directory.
    fn enter(&mut self) -> Result<(), FetchError> {
        loop {
            let next = match self.cursor.next(&self.found.directories)? {
                None => {
                    self.found.directories.flush()?;
                    self.cursor.next(&self.found.directories)?
                }
                next => next,
            };
            let next = next.ok_or_else(|| broken("a group of entries belongs to no directory"))?;
            if next.entry.kind == ManifestKind::Directory(DirectoryContents::Listed) {
                let path = next.entry.path;
                let opened = self.existing.as_mut().and_then(|root| root.open(&path).ok());
                self.group = GroupDirectory { path, opened, state: next.state, at: next.at };
                return Ok(());
            }
        }
    }

    fn entry(&mut self, mut entry: ManifestEntry) -> Result<(), FetchError> {
        if let Some(only) = self.options.only.as_ref().filter(|_| !entry.name.is_empty())
            && (entry.name != *only || !matches!(entry.kind, ManifestKind::File(_)))
        {
            let [listed, only] = [&entry.name, only].map(|name| shown(OsStr::from_bytes(name)));
            let why = format!("the server lists '{listed}', but the requested file is '{only}'");
            return Err(FetchError::broken(why));
        }
        if matches!(entry.kind, ManifestKind::Special(_)) && !self.options.list.specials {
            return Err(broken("it has special files that were not requested"));
        }
        if let ManifestKind::Special(special) = entry.kind
            && special.is_device()
            && !self.install.owner
        {
            // Without its listed owner, the device is accessible only to this user.
            entry.meta.mode &= 0o600;
        }
        let (meta, given) = (&mut entry.meta, &self.options.given);
        (meta.uid, meta.gid) = given.owner(meta.uid, meta.gid);
        meta.mode = given.mode(entry.kind.file_type(), meta.mode);
        let is_below_skipped = self.group.state.is(StoredState::SKIPPED);
        let is_excluded = !is_below_skipped && self.found.filter.excludes(&self.group.path, &entry);
        let is_reserved = !is_excluded && is_reserved_name(&entry.name);
        let is_state = self.found.filter.is_state(&entry);
        let is_skipped = is_below_skipped || is_excluded || is_reserved || is_state;
        let there = self.group.opened.as_ref().and_then(|directory| {
            let name = CString::new(&*entry.name).ok()?;
            directory.look(&name).ok()?
        });
        self.found.reserved += u64::from(is_reserved);
        self.found.excluded += u64::from(is_excluded);
        if let ManifestKind::Directory(contents) = entry.kind {
            if contents == DirectoryContents::Elsewhere && !self.options.list.one_file_system {
                return Err(broken("the entries of a directory are missing"));
            }
            let state = match &there {
                _ if is_skipped => StoredState::SKIPPED,
                Some(there) => self.directory(&entry, there),
                None => StoredState::default(),
            };
            if !is_skipped && !state.is(StoredState::PRESENT) {
                self.touch()?;
            }
            let entry = ListedEntry::of(&self.group.path, entry).map_err(broken)?;
            return self.found.directories.push(&entry, state);
        }
        if is_skipped {
            if let ManifestKind::File(file) = entry.kind {
                self.found.skipped.files += 1;
                self.found.skipped.bytes += file.size;
            }
            return Ok(());
        }
        self.file_or_link(entry, there.as_ref())
    }

    fn file_or_link(
        &mut self,
        entry: ManifestEntry,
        there: Option<&Stat>,
    ) -> Result<(), FetchError> {
        // A symbolic link that must not be created does not become a hard link either. The target may lead elsewhere
        // from the directory of the first name.
        let may_share = self.install.hard_links && self.may_create(&entry.kind);
        let identity = entry.shared_inode().filter(|_| may_share);
        let first = identity.and_then(|identity| self.first_names.of(identity));
        let first_path = first.map(|first| first.path.clone());
        let is_over_directory = self.options.deletes() && there.is_some_and(is_directory);
        let is_deferred = is_over_directory || first.is_some_and(|first| first.is_deferred);
        let is_unchanged = match first {
            Some(first) => there.is_some_and(|there| first.there == Some(InodeId::of(there))),
            None => there.is_some_and(|there| self.is_unchanged(&entry, there)),
        };
        if is_unchanged && let ManifestKind::File(file) = entry.kind {
            self.found.unchanged.files += 1;
            self.found.unchanged.bytes += file.size;
        }
        if is_unchanged && identity.is_none() {
            return Ok(());
        }
        let entry = ListedEntry::of(&self.group.path, entry).map_err(broken)?;
        if let Some(identity) = identity.filter(|_| first_path.is_none()) {
            let there = there.filter(|_| is_unchanged).map(InodeId::of);
            let path = entry.path.clone();
            self.first_names.add(identity, FirstName { path, there, is_deferred });
        }
        if is_unchanged {
            return Ok(());
        }
        self.touch()?;
        let state = StoredState::default();
        let SurveyedList { changed, deferred, .. } = &mut self.found;
        let stores = if is_deferred { deferred } else { changed };
        match first_path {
            None => stores.entries.push(&entry, state),
            Some(path) => {
                stores.links.push(&entry, state)?;
                stores.links.push(&ListedEntry { path, ..entry }, state)
            }
        }
    }

    /// Records that the current directory is changed.
    fn touch(&mut self) -> Result<(), FetchError> {
        let group = &mut self.group;
        if self.found.check.totals.entries > 1 && !group.state.is(StoredState::TOUCHED) {
            self.found.directories.touch(group.at, group.state)?;
            group.state = group.state.touched();
        }
        Ok(())
    }

    fn directory(&self, entry: &ManifestEntry, there: &Stat) -> StoredState {
        if !is_directory(there) {
            return StoredState::default();
        }
        let Some(above) = &self.group.opened else { return StoredState::PRESENT };
        let attributes = self.install.attributes(&entry.meta, &entry.xattrs);
        let name = CString::new(&*entry.name).unwrap_or_default();
        let differs = compare_directory(there, &attributes, above.fd.as_fd(), &name);
        if differs.any() { StoredState::PRESENT } else { StoredState::SAME }
    }

    /// Returns `true` if the existing entry is the listed one.
    fn is_unchanged(&self, entry: &ManifestEntry, there: &Stat) -> bool {
        let Some(directory) = &self.group.opened else { return false };
        let attributes = self.install.attributes(&entry.meta, &entry.xattrs);
        let name = CString::new(&*entry.name).unwrap_or_default();
        let is_same_node = || {
            let differs = compare_node(there, &entry.kind, &attributes, directory, &name);
            differs.is_ok_and(|differs| !differs.any())
        };
        match &entry.kind {
            ManifestKind::File(file) => {
                !self.install.by_hash
                    && !self.install.verify
                    && !compare(there, file.size, &attributes, directory, &name).any()
            }
            ManifestKind::Link(_) | ManifestKind::Special(_) => {
                self.may_create(&entry.kind) && is_same_node()
            }
            ManifestKind::Directory(_) => false,
        }
    }

    /// Returns `false` for a symbolic link that could lead out of the tree, unless every link is created.
    fn may_create(&self, kind: &ManifestKind) -> bool {
        let ManifestKind::Link(target) = kind else { return true };
        self.install.all_links || stays_inside(&self.group.path, target)
    }
}
