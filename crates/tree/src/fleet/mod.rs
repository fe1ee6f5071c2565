//! Copies one tree with workers on many machines. The machines share the two file systems and nothing else: no
//! server, no lock, no clock (docs/decisions/020).
//!
//! The first worker surveys the source and writes the plan. Each worker does tasks of the plan and records them in
//! its own journal. A worker that finds all tasks recorded finishes the tree with an ordinary copy, which finds most
//! of the work done.

mod assignment;
mod bits;
mod boot;
mod descent;
mod existing;
mod finish;
mod finisher;
mod fleet_directory;
mod journals;
mod left;
pub mod line;
mod member;
pub mod plan;
mod planning;
mod published;
mod record;
mod room;
mod share;
mod status;
mod survey;
mod task_loop;
mod task_runner;
mod watch;
mod work;

pub use left::{left, stop};
pub use member::{Duty, Member, TASK_BYTES, TASK_FILES};
pub use record::{MovedBytes, WorkerRecord};
pub use status::{FleetPhase, FleetStatus, status};
pub use work::{FleetEnd, FleetReport, begin, work};
