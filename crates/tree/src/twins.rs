//! Finds existing files that may be equal to a new file of a copy. An equal file is linked instead of copied.

use rustix::fs::Stat;
use std::{ffi::CString, os::fd::OwnedFd, path::Path};

/// Finds files that may be equal to a source: renamed files in the destination, or files of an earlier snapshot.
pub trait Twins: std::fmt::Debug + Send + Sync {
    /// Returns a file that may be equal to this source. `below`: the path of the new file below the destination.
    fn candidate(&self, below: &Path, source: &Stat) -> Option<TwinFile>;

    /// Returns `true` if the files will lose their old names, as after a rename. A file must then have only one name,
    /// and all its bytes are compared.
    fn are_moved(&self) -> bool;
}

/// A file that may be equal to a source.
#[derive(Debug)]
pub struct TwinFile {
    /// Its directory.
    pub dir: OwnedFd,
    /// Its name.
    pub name: CString,
}
