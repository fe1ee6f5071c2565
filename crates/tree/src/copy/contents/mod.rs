//! What a file holds: moved, gone on with, and read again.

pub(crate) mod batch;
pub(crate) mod clone;
pub(crate) mod job;
pub(crate) mod large;
pub(crate) mod open_sink;
pub(crate) mod recheck;
pub(crate) mod resume;
pub(crate) mod run_plan;
pub(crate) mod small;
pub(crate) mod sparse;
pub(crate) mod verify;
