//! Options of a tree fetch, and the trait that observes it.

use std::{path::PathBuf, sync::Arc};

use thalweg_core::{Cancelled, atomic_file::Fsync};
use thalweg_tree::{
    FileLimits, GivenAttributes, KeptEntries, Progress, SyncChange, Total, sync::DeleteOptions,
};

use super::files::InstallPolicy;
use crate::{client::FetchOptions, manifest::ListRequest};

/// Options of a tree fetch.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Options for fetching its files.
    pub files: FetchOptions,
    /// Number of connections; 0 means one per CPU.
    pub jobs: usize,
    /// `true` to keep owners, as far as the kernel permits.
    pub owner: bool,
    /// `true` to make names of one file hard links.
    pub hard_links: bool,
    /// `true` to create every symbolic link as it is, also one that may lead out of the tree. No link is followed.
    pub all_links: bool,
    /// `true` to compare local files of the listed size by their hash instead of their time.
    pub by_hash: bool,
    /// Largest size of the list, in bytes.
    pub most_list: u64,
    /// The request for the list, with the entries to leave out. The server may list them nevertheless.
    pub list: ListRequest,
    /// Limits of size and age. Files beyond them are skipped.
    pub limits: FileLimits,
    /// Attributes that replace those of the list.
    pub given: GivenAttributes,
    /// An earlier snapshot: new files become links to its equal files.
    pub reference: Option<PathBuf>,
    /// The rules of a sync.
    pub sync: Option<TreeSync>,
    /// The name of the file, if the server serves only a single file. The file becomes an entry of the destination. An
    /// existing destination keeps its attributes, and nothing in it is deleted.
    pub only: Option<Vec<u8>>,
}

impl TreeOptions {
    /// Largest size of a list, in bytes, unless the user sets another one.
    pub const MOST_LIST: u64 = 4 << 30;

    /// Returns the options that keep neither owners nor hard links, and leave nothing out.
    pub fn new(files: FetchOptions) -> Self {
        Self {
            files,
            jobs: 0,
            owner: false,
            hard_links: false,
            all_links: false,
            by_hash: false,
            most_list: Self::MOST_LIST,
            list: ListRequest::default(),
            limits: FileLimits::default(),
            given: GivenAttributes::default(),
            reference: None,
            sync: None,
            only: None,
        }
    }

    /// Returns `true` if entries that the list does not have are deleted.
    pub(super) fn deletes(&self) -> bool {
        self.only.is_none() && self.sync.as_ref().is_some_and(|sync| sync.delete.is_some())
    }

    /// Returns the policy for comparisons with an existing directory, which create nothing.
    pub(super) fn comparison_policy(&self) -> InstallPolicy<'_> {
        InstallPolicy {
            is_fresh: false,
            is_staged: false,
            owner: self.owner,
            hard_links: self.hard_links,
            all_links: self.all_links,
            by_hash: self.by_hash,
            verify: self.files.verify,
            xattrs: self.list.xattrs,
            is_synced_whole: false,
            fsync: Fsync::Never,
            over_others: self.sync.is_some(),
            close_may_fail: false,
            is_directory_gone: false,
            kept: None,
        }
    }
}

/// Rules of a tree fetch that makes the destination equal to the source.
#[derive(Clone, Debug, Default)]
pub struct TreeSync {
    /// Options for deleting entries that the list does not have. The filter of the fetch and `dry_run` of this sync
    /// replace the values in these options.
    pub delete: Option<DeleteOptions>,
    /// `true` to take the content of new files from equal files that are deleted.
    pub detects_renames: bool,
    /// `true` to report what would be changed, and to change nothing.
    pub dry_run: bool,
    /// The destination.
    pub path: PathBuf,
    /// The directory that keeps replaced and deleted entries.
    pub kept: Option<Arc<KeptEntries>>,
}

/// Observer of a tree fetch.
pub trait TreeWatcher: Sync {
    /// Called when the list is complete, with the totals of the tree.
    fn total(&self, total: Total);
    /// Called while bytes are received.
    fn progress(&self, now: Progress) -> Result<(), Cancelled>;
    /// Called with each change of a sync.
    fn changed(&self, change: &SyncChange<'_>) {
        let _ = change;
    }
    /// Called regularly; an error cancels the fetch.
    fn check_cancelled(&self) -> Result<(), Cancelled>;
    /// Called with a message for the user.
    fn report(&self, message: &str);
}
