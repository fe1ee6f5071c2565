//! The contents of files: copied, resumed and verified.

pub(crate) mod batch;
pub(crate) mod clone;
pub(crate) mod delta;
pub(crate) mod job;
pub(crate) mod large;
pub(crate) mod open_sink;
pub(crate) mod recheck;
pub(crate) mod resume;
pub(crate) mod run_plan;
pub(crate) mod small;
pub(crate) mod sparse;
pub(crate) mod verify;
