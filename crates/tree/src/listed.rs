//! The files of a copy, in the form of a manifest.

use std::path::{Path, PathBuf};

use crate::names::{os_bytes, plain};

/// The files that a copy wrote or skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListedFiles {
    /// The directory that the names are relative to.
    pub folder: PathBuf,
    /// The paths of the files.
    pub names: Vec<Vec<u8>>,
}

impl ListedFiles {
    /// Creates the list from names relative to `base`. If the only source was a tree that became `destination`, makes
    /// the names relative to `destination`.
    pub(crate) fn new(
        names: &[Vec<u8>],
        base: &Path,
        destination: &Path,
        is_one_tree: bool,
    ) -> Self {
        let names = names.iter().map(|name| plain(name));
        if is_one_tree && base != destination {
            let below = |name: Vec<u8>| {
                let cut = name.iter().position(|byte| *byte == b'/').map_or(0, |at| at + 1);
                name[cut..].to_vec()
            };
            return Self { folder: destination.to_owned(), names: names.map(below).collect() };
        }
        let folder = if base.as_os_str().is_empty() { Path::new(".") } else { base };
        Self { folder: folder.to_owned(), names: names.collect() }
    }

    /// Returns the path of one file, for messages.
    pub(crate) fn path(&self, index: usize) -> PathBuf {
        self.folder.join(os_bytes(&self.names[index]))
    }
}
