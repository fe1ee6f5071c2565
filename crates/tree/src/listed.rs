//! The files that a copy answers for, as a manifest of it names them.

use std::path::{Path, PathBuf};

use crate::names::{os_bytes, plain};

/// The files that a copy put somewhere, or left there as they were.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The folder that the names are below.
    pub folder: PathBuf,
    /// Their paths.
    pub names: Vec<Vec<u8>>,
}

impl Listed {
    /// Of names below `base`. If the only source was a tree that became `destination`, they are below
    /// that.
    pub(crate) fn new(
        names: &[Vec<u8>],
        base: &Path,
        (destination, is_one_tree): (&Path, bool),
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

    /// The path of one of them, for people.
    pub(crate) fn path(&self, index: usize) -> PathBuf {
        self.folder.join(os_bytes(&self.names[index]))
    }
}
