//! What a fetch of a tree is told, and whom it tells.

use thalweg_core::Cancelled;
use thalweg_tree::{Progress, Total};

use crate::client::Options;

/// How to fetch a tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// How its files are fetched.
    pub files: Options,
    /// Connections; 0 means as many as there are processors.
    pub jobs: usize,
    /// Owners are kept, as far as the kernel lets us.
    pub owner: bool,
    /// Whether a file of the listed size has to come is found out by its hash, and not by its time.
    pub by_hash: bool,
    /// The most bytes that the list may have.
    pub most_list: u64,
}

/// Somebody who looks on.
pub trait TreeWatcher: Sync {
    /// The list is there: so much is in the tree.
    fn total(&self, total: Total);
    /// Called while bytes come.
    fn progress(&self, now: Progress) -> Result<(), Cancelled>;
    /// Called now and then.
    fn go_on(&self) -> Result<(), Cancelled>;
    /// What a person may want to know meanwhile.
    fn tell(&self, news: &str);
}
