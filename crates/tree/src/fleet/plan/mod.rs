//! The plan of a fleet: numbered tasks, each with some files or a range of one file. docs/reference/formats.md
//! describes the format.

mod bytes;
mod error;
mod file;
mod index;
mod task;
mod write;

pub use error::PlanError;
pub use file::FleetPlan;
pub use index::{Indexed, MOST_TASKS, Surveyed};
pub use task::{FleetTask, LONGEST_FOLDER, MOST_FILES, MOST_RECORD, PlanEntry, SourceStamp};
pub(crate) use write::PlanWriter;
