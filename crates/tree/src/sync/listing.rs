//! The names that the source of a sync has, from a local directory or from another machine.

use std::collections::HashMap;

use crate::Error;

/// The names in the source of a sync: a local directory, or a list that another machine sent.
pub trait SourceNames: Sync {
    /// Lists one directory of the source. The path is relative to the source, with `/` between names; it is empty for
    /// the source itself. An error means that the names are unknown.
    fn list(&self, directory: &[u8]) -> Result<SourceListing, Error>;

    /// Returns a text that identifies the file system of the source and is equal in every run. `None` if no such text
    /// exists.
    fn identity(&self) -> Option<String>;

    /// Returns `true` if a directory of the destination is part of the source. The directory is given by its device and
    /// inode number.
    fn contains(&self, device: u64, inode: u64) -> bool {
        let _ = (device, inode);
        false
    }
}

/// The names in one directory of the source.
#[derive(Debug, Default)]
pub struct SourceListing {
    /// All names, with `true` for a directory. Links were followed if the options demand it.
    pub names: HashMap<Box<[u8]>, bool>,
    /// `true` if destination entries without a name in this list stay, because they do not belong to the sync.
    pub keeps_others: bool,
    /// `true` if a filter excluded entries. Their names are then missing from the list.
    pub has_excluded: bool,
    /// The device of the directory, if it is local and was listed.
    pub device: Option<u64>,
}

impl SourceListing {
    /// Returns a listing that protects all entries of a directory.
    pub fn keep_all() -> Self {
        Self { keeps_others: true, ..Self::default() }
    }
}
