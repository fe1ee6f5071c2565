//! Options of a comparison.

/// The interpretation of the destination name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Into {
    /// thalweg decides from the existing entries: see [`compare`](super::compare).
    #[default]
    Guess,
    /// The directory that the sources were copied into.
    Folder,
    /// The copy itself.
    Itself,
}

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// The interpretation of the destination name.
    pub into: Into,
    /// Also compare mode, owner, modification time, extended attributes, ACLs and hard links.
    pub attributes: bool,
    /// Drop the page cache of each file first.
    pub cold: bool,
    /// Number of threads; 0 means one per core.
    pub jobs: usize,
}
