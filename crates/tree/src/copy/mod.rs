//! Copies trees: a run distributes tasks to workers, and each worker copies one entry at a time.

pub(crate) mod attributes;
pub(crate) mod compared;
pub(crate) mod contents;
pub(crate) mod copy_entry;
pub(crate) mod descriptors;
pub(crate) mod dest;
pub(crate) mod directory;
pub(crate) mod durable;
pub(crate) mod entry;
pub(crate) mod file_copy;
pub(crate) mod links;
pub(crate) mod name_at;
pub(crate) mod plans;
pub(crate) mod report;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod staged_dir;
pub(crate) mod start;
pub(crate) mod task;
pub(crate) mod unchanged;
pub(crate) mod walk;
pub(crate) mod whole_sync;
pub(crate) mod worker;
