//! Access to directories: list one, walk a tree, open beneath a root, keep some open, create entries without contents,
//! remove a tree.

pub(crate) mod beneath;
pub(crate) mod cached;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod special;
pub(crate) mod walk;
