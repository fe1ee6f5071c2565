//! Copies one directory entry, by file type.

pub(crate) mod file;
pub(crate) mod hardlink;
pub(crate) mod linking;
pub(crate) mod parents;
pub(crate) mod special;
pub(crate) mod symlink;
pub(crate) mod twin;
