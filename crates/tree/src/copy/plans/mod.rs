//! How files are to be moved: the facts about each pair of file systems, and what was found out about small
//! files on it.

use thalweg_core::{Blocks, mechanisms::by_name};

pub(crate) mod contest;
pub(crate) mod pair;

/// Whether what this mechanism moved shares its blocks with the source.
pub(crate) fn is_clone(mechanism: &str) -> bool {
    by_name(mechanism).is_some_and(|m| m.info().nature.blocks == Blocks::Shared)
}
