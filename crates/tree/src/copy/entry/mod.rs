//! Copies one directory entry, by file type.

pub(crate) mod file;
pub(crate) mod hardlink;
pub(crate) mod linking;
mod new_node;
pub(crate) mod node;
pub(crate) mod parents;
pub(crate) mod twin;
