//! What can be asked of a comparison.

/// What the destination's name means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Into {
    /// What only can match: see [`compare`](super::compare).
    #[default]
    Guess,
    /// The folder that the sources were copied into.
    Folder,
    /// The copy itself.
    Itself,
}

/// What can be asked of a comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// What the destination's name means.
    pub into: Into,
    /// Compare mode, owner, times of modification, extended attributes, lists and hard links too.
    pub attributes: bool,
    /// Let the page cache go first.
    pub cold: bool,
    /// Threads; 0 means as many as there are processors.
    pub jobs: usize,
}
