//! Applies the filters of a fetch to the entries of a list. The server applies them too, but its list is not trusted.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use thalweg_tree::{
    ExcludePatterns, FileLimits, Filter,
    sync::{DirectoryFilter, is_state_file},
};

use super::{account::FetchCounters, list::broken, options::TreeOptions};
use crate::{
    client::FetchError,
    manifest::{GroupFilter, ManifestEntry, ManifestKind},
};

/// The filters of a fetch, and the filter files that the server sent.
pub struct ListedFilter {
    filter: Option<Arc<DirectoryFilter>>,
    limits: FileLimits,
    /// `true` for a sync, which leaves state files alone.
    is_sync: bool,
    /// `true` if the server serves only a single file. Patterns with a directory cannot exclude that file.
    is_source: bool,
    /// The name of the filter files, if they are requested.
    name: Option<Vec<u8>>,
    /// Bytes of the paths of directories with filter files.
    held: usize,
    /// Filter files that the server cannot read.
    unreadable: Vec<Vec<u8>>,
}

/// Largest size of the paths of directories with filter files, in bytes.
const MOST_HELD: usize = 64 << 20;

impl ListedFilter {
    /// Creates the filter of a fetch.
    pub fn of(options: &TreeOptions) -> Self {
        let list = &options.list;
        let mut patterns = ExcludePatterns::default();
        list.exclude.iter().for_each(|pattern| patterns.add(pattern.as_bytes()));
        let name = list.filter_file.as_ref().map(|name| name.as_bytes().to_vec());
        let filter = (!patterns.is_empty() || name.is_some())
            .then(|| Arc::new(DirectoryFilter::received(Some(Arc::new(patterns)))));
        let (limits, is_sync) = (options.limits, options.sync.is_some());
        let is_source = options.only.is_some();
        Self { filter, limits, is_sync, is_source, name, held: 0, unreadable: Vec::new() }
    }

    /// Adds the filter file of a listed directory.
    pub fn add(&mut self, directory: &[u8], sent: &GroupFilter) -> Result<(), FetchError> {
        let (Some(filter), Some(name)) = (&self.filter, &self.name) else {
            let is_none = *sent == GroupFilter::NotRequested;
            return if is_none {
                Ok(())
            } else {
                Err(broken("it has filter files that were not requested"))
            };
        };
        let text = match sent {
            GroupFilter::NotRequested => {
                let why = "the server sends no filter files, which --filter-file needs";
                return Err(FetchError::Unsupported(why.to_owned()));
            }
            GroupFilter::Unreadable => {
                let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
                self.unreadable.push([directory, separator, name].concat());
                None
            }
            GroupFilter::Text(text) if text.is_empty() => return Ok(()),
            GroupFilter::Text(text) => Some(&**text),
        };
        self.held += directory.len() + size_of::<(Vec<u8>, Vec<u8>)>();
        let is_added = filter.add(Path::new(OsStr::from_bytes(directory)), text);
        if !is_added || self.held > MOST_HELD {
            return Err(broken("its filter files need more than 64 MiB of memory"));
        }
        Ok(())
    }

    /// Returns `true` for the state file that an earlier sync left in the source.
    pub fn is_state(&self, entry: &ManifestEntry) -> bool {
        self.is_sync && is_state_file(&entry.name)
    }

    /// Returns `true` if the filters exclude an entry of `directory`.
    pub fn excludes(&self, directory: &[u8], entry: &ManifestEntry) -> bool {
        if entry.name.is_empty() {
            return false;
        }
        let is_directory = matches!(entry.kind, ManifestKind::Directory(_));
        let directory = if self.is_source { b".." } else { directory };
        let path = || Path::new(OsStr::from_bytes(directory)).join(OsStr::from_bytes(&entry.name));
        let is_left_out =
            self.filter.as_ref().is_some_and(|filter| filter.leaves_out(&path(), is_directory));
        is_left_out
            || matches!(entry.kind, ManifestKind::File(file) if !self.limits.allow(file.size, entry.meta.mtime))
    }

    /// Returns the filter that protects entries from deletion.
    pub fn of_deletion(&self) -> Option<Arc<dyn Filter>> {
        self.filter.clone().map(|filter| filter as Arc<dyn Filter>)
    }

    /// Records a failed entry for each filter file that the server cannot read.
    pub fn report(&self, counters: &FetchCounters<'_>) {
        for path in &self.unreadable {
            let why = "the filter file in the source cannot be read";
            counters.missed_alone(path, FetchError::listed(why));
        }
    }
}
