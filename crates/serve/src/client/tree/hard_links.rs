//! Files with several names. The first name of the list is fetched like any other file, and the others become hard
//! links to it.

use std::{
    collections::HashMap,
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::{AtFlags, FileType, Stat, statat};
use thalweg_core::atomic_file::{failed, name::unique, rename, unlink};
use thalweg_sys::io;
use thalweg_tree::install::KeptPath;

use super::{
    account::FetchCounters,
    change::EntryChange,
    compare::{compare, has_other_bytes},
    directories::{DirectoryCache, TreeDirectory, is_directory},
    entry::ListedEntry,
    files::{InstallPolicy, OVER_DIRECTORY},
    store::{EntryStore, StoredState},
};
use crate::{
    client::FetchError,
    manifest::{FileTag, ManifestKind},
};

/// Maximum memory, in bytes, for first names. If it is exceeded, every name of a further file is fetched separately.
const MOST_HELD: usize = 64 << 20;

/// Device and inode number.
type FileId = (u64, u64);

/// The first names of files with several names, while the list is received.
#[derive(Default)]
pub struct FirstNames {
    names: HashMap<FileId, FirstName>,
    held: usize,
}

/// The first name of a file.
pub struct FirstName {
    pub path: Vec<u8>,
    /// Identity of the existing file, if it is as listed.
    pub there: Option<FileId>,
    /// `true` if the file replaces a directory, after the deletion has removed it.
    pub is_deferred: bool,
}

/// Returns device and inode number.
pub fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

impl FirstNames {
    /// Returns the first name of the file, if it was listed.
    pub fn of(&self, file: &FileTag) -> Option<&FirstName> {
        self.names.get(&(file.linked_on?, file.inode))
    }

    /// Adds the first name of a file, if the file has several.
    pub fn add(&mut self, file: &FileTag, name: FirstName) {
        let Some(device) = file.linked_on else { return };
        let held = self.held + size_of::<(FileId, FirstName)>() + name.path.len();
        if held <= MOST_HELD {
            self.held = held;
            self.names.insert((device, file.inode), name);
        }
    }
}

/// Creates the hard links in `links`, where each name is followed by the first name of its file. Adds names that cannot
/// be linked to `rest`; they are fetched later.
pub fn link_names(
    links: &EntryStore,
    root: BorrowedFd<'_>,
    install: InstallPolicy<'_>,
    counters: &FetchCounters<'_>,
    rest: &mut EntryStore,
) -> Result<(), FetchError> {
    let mut entries = links.entries();
    let (mut from, mut to) = (DirectoryCache::below(root), DirectoryCache::below(root));
    while let (Some(name), Some(first)) = (entries.next_entry()?, entries.next_entry()?) {
        counters.check_cancelled()?;
        let (name, first) = (name.entry, first.entry);
        let pair = NamePair { name: &name, first: &first, install };
        match pair.link(&mut from, &mut to) {
            Ok(HardLinkOutcome::Linked(change)) => counters.linked(&name.path, name.size(), change),
            Ok(HardLinkOutcome::Unchanged) => counters.settled(name.size(), false),
            Ok(HardLinkOutcome::Refused) => rest.push(&name, StoredState::default())?,
            Err(error) => counters.missed(&name.path, error),
        }
    }
    rest.flush()
}

/// Reports the names that [`link_names`] would create.
pub fn preview_names(
    links: &EntryStore,
    mut root: Option<DirectoryCache<'_>>,
    install: InstallPolicy<'_>,
    counters: &FetchCounters<'_>,
) -> Result<(), FetchError> {
    let mut entries = links.entries();
    while let (Some(name), Some(first)) = (entries.next_entry()?, entries.next_entry()?) {
        counters.check_cancelled()?;
        let (name, first) = (name.entry, first.entry);
        match preview_name(&name, &first, root.as_mut(), install) {
            Ok(None) => counters.settled(name.size(), false),
            Ok(Some(change)) => {
                counters.changed(&name.path, FileType::RegularFile, name.size(), change);
            }
            Err(error) => counters.missed(&name.path, error),
        }
    }
    Ok(())
}

fn preview_name(
    name: &ListedEntry,
    first: &ListedEntry,
    root: Option<&mut DirectoryCache<'_>>,
    install: InstallPolicy<'_>,
) -> Result<Option<EntryChange>, FetchError> {
    let Some(root) = root else { return Ok(Some(EntryChange::linked(false))) };
    let Ok(to) = root.open(name.directory()) else { return Ok(Some(EntryChange::linked(false))) };
    let mut there = to.look(&name.name())?;
    if there.as_ref().is_some_and(is_directory) {
        if !install.is_directory_gone {
            return Err(FetchError::listed(OVER_DIRECTORY));
        }
        there = None;
    }
    let change = EntryChange::linked(there.is_some());
    let Ok(from) = root.open(first.directory()) else { return Ok(Some(change)) };
    let Ok(Some(copy)) = from.look(&first.name()) else { return Ok(Some(change)) };
    // If the first name has other bytes, a new file replaces it, so the link must change too.
    let differs = compare(
        &copy,
        first.size(),
        &install.attributes(&first.meta, &first.xattrs),
        &from,
        &first.name(),
    );
    let is_linked = there.is_some_and(|there| id(&there) == id(&copy));
    Ok((!is_linked || has_other_bytes(differs, true)).then_some(change))
}

/// A name, and the first name of its file.
struct NamePair<'a> {
    name: &'a ListedEntry,
    first: &'a ListedEntry,
    install: InstallPolicy<'a>,
}

/// The result of linking a name.
enum HardLinkOutcome {
    Linked(EntryChange),
    /// The existing entry is already a name of the file.
    Unchanged,
    /// The first name is missing or differs from the list, or the file system refuses the link.
    Refused,
}

impl NamePair<'_> {
    fn link(
        &self,
        from: &mut DirectoryCache<'_>,
        to: &mut DirectoryCache<'_>,
    ) -> Result<HardLinkOutcome, FetchError> {
        let (name, first) = (self.name.name(), self.first.name());
        let Ok(from) = from.open(self.first.directory()) else {
            return Ok(HardLinkOutcome::Refused);
        };
        let Some(copy) = from.look(&first)? else { return Ok(HardLinkOutcome::Refused) };
        let attributes = self.install.attributes(&self.first.meta, &self.first.xattrs);
        let differs = compare(&copy, self.first.size(), &attributes, &from, &first);
        if has_other_bytes(differs, true) {
            return Ok(HardLinkOutcome::Refused);
        }
        let to = to.open(self.name.directory())?;
        let there = to.look(&name)?;
        match &there {
            Some(there) if is_directory(there) => return Err(FetchError::listed(OVER_DIRECTORY)),
            Some(there) if id(there) == id(&copy) => return Ok(HardLinkOutcome::Unchanged),
            _ => {}
        }
        let existing = ExistingFile { directory: &from, name: &first, stat: copy };
        let kept = self.install.kept(&self.name.path).filter(|_| there.is_some());
        if !existing.link(&to, &name, true, kept)? {
            return Ok(HardLinkOutcome::Refused);
        }
        Ok(HardLinkOutcome::Linked(EntryChange::linked(there.is_some())))
    }
}

/// A file that exists.
pub struct ExistingFile<'a> {
    pub directory: &'a TreeDirectory,
    pub name: &'a CStr,
    pub stat: Stat,
}

impl ExistingFile<'_> {
    /// Gives the file another name, in the directory `to`. Returns `false` if the file system refuses, or if another
    /// process replaced the file. `replaces`: `true` to replace an existing entry, which `kept` keeps; otherwise an
    /// existing entry is an error.
    pub fn link(
        &self,
        to: &TreeDirectory,
        name: &CStr,
        replaces: bool,
        kept: Option<KeptPath<'_>>,
    ) -> Result<bool, FetchError> {
        let temporary = unique(name);
        if io::link(&self.directory.fd, self.name, &to.fd, &*temporary).is_err() {
            return Ok(false);
        }
        // Another process may have replaced the file since the caller compared it.
        let linked = statat(&to.fd, &*temporary, AtFlags::SYMLINK_NOFOLLOW);
        if !linked.is_ok_and(|linked| id(&linked) == id(&self.stat)) {
            let _ = unlink(to.fd.as_fd(), &temporary);
            return Ok(false);
        }
        let kept = kept.map_or(Ok(()), |kept| kept.keep(to.fd.as_fd(), name));
        let renamed = kept.and_then(|()| {
            rename(to.fd.as_fd(), &temporary, name, !replaces).map_err(failed("renameat2"))
        });
        if let Err(error) = renamed {
            let _ = unlink(to.fd.as_fd(), &temporary);
            return Err(error.into());
        }
        Ok(true)
    }
}

impl ListedEntry {
    /// Returns the size of a file.
    pub fn size(&self) -> u64 {
        match &self.kind {
            ManifestKind::File(file) => file.size,
            _ => 0,
        }
    }
}
