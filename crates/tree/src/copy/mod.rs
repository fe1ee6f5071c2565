//! Copies trees: a run shares out tasks to workers, and each of them copies one entry after the other.

pub(crate) mod attributes;
pub(crate) mod contents;
pub(crate) mod dest;
pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod leaf;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod task;
pub(crate) mod worker;
