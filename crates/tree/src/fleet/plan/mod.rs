//! The plan of a fleet: numbered tasks, each some files or a stretch of one. docs/formats.md has the layout.

mod bytes;
mod error;
mod file;
mod index;
mod task;
mod write;

pub use error::PlanError;
pub use file::Plan;
pub use index::{Indexed, MOST_TASKS, Surveyed};
pub use task::{Entry, LONGEST_FOLDER, MOST_FILES, MOST_RECORD, Seen, Task};
pub(crate) use write::PlanWriter;
