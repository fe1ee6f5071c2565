//! Detects renamed files. If a file that the deletion removes has the content of a new file, the server need not send
//! it.

use std::{path::Path, sync::OnceLock};

use thalweg_core::Cancelled;
use thalweg_tree::{
    Events,
    sync::{DeleteOptions, RenameCandidates, SizeAndTime},
};

use super::{
    account::FetchCounters, files::WantedFile, list::EntryList, listed_names::ListedNames,
    options::TreeOptions, received::ReceivedList,
};
use crate::client::download::BaseFile;

/// Size of the smallest file for which an earlier name is searched, in bytes. Smaller files are fetched together, which
/// takes less time than a separate request for the block sums of each.
const LEAST: u64 = 1 << 20;

/// The files that the deletion removes, as candidates for earlier names of new files. They are listed when the first
/// large new file is to be fetched.
pub struct TreeRenames<'a> {
    list: &'a EntryList,
    destination: &'a Path,
    options: DeleteOptions,
    counters: &'a FetchCounters<'a>,
    found: OnceLock<Option<RenameCandidates>>,
}

impl<'a> TreeRenames<'a> {
    /// Prepares the detection. Returns `None` if it is not requested, if nothing is deleted, or if the server is not at
    /// the other end of a byte stream and thus sends no block sums.
    pub fn of(
        received: &'a ReceivedList,
        options: &'a TreeOptions,
        counters: &'a FetchCounters<'a>,
    ) -> Option<Self> {
        let sync = options.sync.as_ref().filter(|sync| sync.detects_renames)?;
        let delete = sync.delete.as_ref().filter(|_| options.deletes())?;
        options.files.channels.as_ref()?;
        let (filter, kept) = (received.found.filter.of_deletion(), sync.kept.clone());
        Some(Self {
            list: &received.list,
            destination: &sync.path,
            options: DeleteOptions { filter, kept, ..delete.clone() },
            counters,
            found: OnceLock::new(),
        })
    }

    /// Returns `true` if the deletion will remove a file that may have the content of the wanted one.
    pub fn has(&self, wanted: &WantedFile) -> bool {
        let is_new = wanted.replaces.is_none() && wanted.size >= LEAST;
        is_new && self.find().is_some_and(|found| found.has(size_and_time(wanted)))
    }

    /// Returns `true` if the deletion will remove files that may have been renamed.
    pub fn has_any(&self) -> bool {
        self.find().is_some_and(|found| !found.is_empty())
    }

    /// Opens a file with the size and time of the wanted one. Each file is returned once.
    pub fn take(&self, wanted: &WantedFile) -> Option<BaseFile> {
        let found = self.find().filter(|_| wanted.replaces.is_none())?;
        let twin = found.take(wanted.name.to_bytes(), size_and_time(wanted))?;
        BaseFile::open(&twin.dir, &twin.name)
    }

    fn find(&self) -> Option<&RenameCandidates> {
        let find = || {
            let names = ListedNames::of(self.list).ok()?;
            RenameCandidates::find(self.destination, &names, &self.options, &Halts(self.counters))
        };
        self.found.get_or_init(find).as_ref()
    }
}

/// Ends the search when the fetch stops.
struct Halts<'a>(&'a FetchCounters<'a>);

impl Events for Halts<'_> {
    fn go_on(&self) -> Result<(), Cancelled> {
        self.0.check_cancelled()
    }
}

fn size_and_time(wanted: &WantedFile) -> SizeAndTime {
    let (seconds, nanoseconds) = wanted.attributes.mtime;
    SizeAndTime { size: wanted.size, seconds, nanoseconds: nanoseconds.into() }
}
