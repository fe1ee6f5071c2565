//! Files, symbolic links and special files with several names. The first name of the list is fetched or created like
//! any other entry, and the others become hard links to it.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::{AtFlags, Stat, statat};
use thalweg_tree::{
    AttributeDifferences,
    install::{KeptPath, NewEntry},
};

use super::{
    account::FetchCounters,
    change::EntryChange,
    compare::{compare, compare_node, has_other_bytes},
    directories::{DirectoryCache, TreeDirectory, is_directory},
    entry::ListedEntry,
    files::{InstallPolicy, OVER_DIRECTORY},
    store::{EntryStore, StoredState},
};
use crate::{
    client::FetchError,
    manifest::{InodeId, ManifestKind},
};

/// Maximum memory, in bytes, for first names. If it is exceeded, each name of further entries is created separately.
const MOST_HELD: usize = 64 << 20;

/// The first names of entries with several names, while the list is received.
#[derive(Default)]
pub struct FirstNames {
    names: HashMap<InodeId, FirstName>,
    held: usize,
}

/// The first name of an entry.
pub struct FirstName {
    pub path: Vec<u8>,
    /// Identity of the existing entry, if it is as listed.
    pub there: Option<InodeId>,
    /// `true` if the entry replaces a directory, after the deletion has removed it.
    pub is_deferred: bool,
}

impl FirstNames {
    /// Returns the first name with this identity, if it was listed.
    pub fn of(&self, identity: InodeId) -> Option<&FirstName> {
        self.names.get(&identity)
    }

    /// Adds the first name with this identity.
    pub fn add(&mut self, identity: InodeId, name: FirstName) {
        let held = self.held + size_of::<(InodeId, FirstName)>() + name.path.len();
        if held <= MOST_HELD {
            self.held = held;
            self.names.insert(identity, name);
        }
    }
}

/// Creates the hard links in `links`, where each name is followed by the first name of its entry. Adds names that
/// cannot be linked to `rest`; they are fetched or created later.
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
            Ok(HardLinkOutcome::Linked(change)) => {
                counters.linked(&name.path, name.kind.file_type(), name.size(), change);
            }
            Ok(HardLinkOutcome::Unchanged) => unchanged(&name, counters),
            Ok(HardLinkOutcome::Refused) => rest.push(&name, StoredState::default())?,
            Err(error) => counters.missed(&name.path, error),
        }
    }
    rest.flush()
}

/// Reports the names that [`link_names`] would create. `replaced`: the files with a hash that differs.
pub fn preview_names(
    links: &EntryStore,
    mut root: Option<DirectoryCache<'_>>,
    replaced: &HashSet<Vec<u8>>,
    install: InstallPolicy<'_>,
    counters: &FetchCounters<'_>,
) -> Result<(), FetchError> {
    let mut entries = links.entries();
    while let (Some(name), Some(first)) = (entries.next_entry()?, entries.next_entry()?) {
        counters.check_cancelled()?;
        let (name, first) = (name.entry, first.entry);
        match preview_name(&name, &first, root.as_mut(), replaced, install) {
            Ok(None) => unchanged(&name, counters),
            Ok(Some(change)) => {
                counters.changed(&name.path, name.kind.file_type(), name.size(), change);
            }
            Err(error) => counters.missed(&name.path, error),
        }
    }
    Ok(())
}

/// Counts a name that is already a link to the first one. Only files are counted.
fn unchanged(name: &ListedEntry, counters: &FetchCounters<'_>) {
    if matches!(name.kind, ManifestKind::File(_)) {
        counters.settled(name.size(), false);
    }
}

fn preview_name(
    name: &ListedEntry,
    first: &ListedEntry,
    root: Option<&mut DirectoryCache<'_>>,
    replaced: &HashSet<Vec<u8>>,
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
    let differs = differences(first, &copy, install, &from)?;
    // If a new entry replaces the first name, the link must change too. A file is replaced if its bytes differ, and any
    // other entry also if its attributes differ.
    let is_replaced = match &first.kind {
        ManifestKind::File(_) => {
            has_other_bytes(differs, !install.by_hash) || replaced.contains(&first.path)
        }
        _ => differs.any(),
    };
    let is_linked = there.is_some_and(|there| InodeId::of(&there) == InodeId::of(&copy));
    Ok((!is_linked || is_replaced).then_some(change))
}

/// Compares a listed first name with the existing entry `copy` in `directory`.
fn differences(
    first: &ListedEntry,
    copy: &Stat,
    install: InstallPolicy<'_>,
    directory: &TreeDirectory,
) -> Result<AttributeDifferences, FetchError> {
    let (name, attributes) = (first.name(), install.attributes(&first.meta, &first.xattrs));
    match &first.kind {
        ManifestKind::File(file) => Ok(compare(copy, file.size, &attributes, directory, &name)),
        kind => compare_node(copy, kind, &attributes, directory, &name),
    }
}

/// A name, and the first name of its entry.
struct NamePair<'a> {
    name: &'a ListedEntry,
    first: &'a ListedEntry,
    install: InstallPolicy<'a>,
}

/// The result of linking a name.
enum HardLinkOutcome {
    Linked(EntryChange),
    /// The existing entry is already a link to the first name.
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
        let differs = differences(self.first, &copy, self.install, &from)?;
        if has_other_bytes(differs, true) {
            return Ok(HardLinkOutcome::Refused);
        }
        let to = to.open(self.name.directory())?;
        let there = to.look(&name)?;
        match &there {
            Some(there) if is_directory(there) => return Err(FetchError::listed(OVER_DIRECTORY)),
            Some(there) if InodeId::of(there) == InodeId::of(&copy) => {
                return Ok(HardLinkOutcome::Unchanged);
            }
            _ => {}
        }
        let existing = ExistingEntry { directory: &from, name: &first, stat: copy };
        let kept = self.install.kept(&self.name.path).filter(|_| there.is_some());
        if !existing.link(&to, &name, true, kept)? {
            return Ok(HardLinkOutcome::Refused);
        }
        Ok(HardLinkOutcome::Linked(EntryChange::linked(there.is_some())))
    }
}

/// A file, symbolic link or special file that exists.
pub struct ExistingEntry<'a> {
    pub directory: &'a TreeDirectory,
    pub name: &'a CStr,
    pub stat: Stat,
}

impl ExistingEntry<'_> {
    /// Gives the entry another name, in the directory `to`. Returns `false` if the file system refuses, or if another
    /// process replaced the entry. `replaces`: `true` to replace an existing entry, which `kept` keeps; otherwise an
    /// existing entry is an error.
    pub fn link(
        &self,
        to: &TreeDirectory,
        name: &CStr,
        replaces: bool,
        kept: Option<KeptPath<'_>>,
    ) -> Result<bool, FetchError> {
        let new = NewEntry::hard_link(self.directory.fd.as_fd(), self.name);
        let Ok(temporary) = new.create_beside(to.fd.as_fd(), name) else { return Ok(false) };
        // Another process may have replaced the entry since the caller compared it.
        let linked = statat(&to.fd, temporary.name(), AtFlags::SYMLINK_NOFOLLOW);
        if !linked.is_ok_and(|linked| InodeId::of(&linked) == InodeId::of(&self.stat)) {
            return Ok(false);
        }
        kept.map_or(Ok(()), |kept| kept.keep(to.fd.as_fd(), name))?;
        temporary.install(name, !replaces)?;
        Ok(true)
    }
}

impl ListedEntry {
    /// Returns the size of a file, and 0 for other entries.
    pub fn size(&self) -> u64 {
        match &self.kind {
            ManifestKind::File(file) => file.size,
            _ => 0,
        }
    }
}
