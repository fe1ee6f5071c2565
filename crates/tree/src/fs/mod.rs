//! Access to directories: list one, walk a tree, open beneath a root, create entries without contents.

pub(crate) mod beneath;
pub(crate) mod list;
pub(crate) mod special;
pub(crate) mod walk;
