//! Plans for copying files: facts about each pair of file systems, and measurements of small files on it.

use thalweg_core::{Blocks, mechanisms::by_name};

pub(crate) mod contest;
pub(crate) mod pair;

/// Returns `true` if data moved by this mechanism shares its blocks with the source.
pub(crate) fn is_clone(mechanism: &str) -> bool {
    by_name(mechanism).is_some_and(|m| m.info().nature.blocks == Blocks::Shared)
}
