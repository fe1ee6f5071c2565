//! One tree copied by workers on many machines that share its two file systems and nothing else: no server, no
//! lock, no clock (docs/decisions/020).
//!
//! Who comes first surveys the source and writes the plan. Each worker does tasks of it and notes them in a journal
//! of its own; who finds every task noted finishes, which is an ordinary copy that finds most of its work done.

mod assignment;
mod bits;
mod boot;
mod descent;
mod existing;
mod finish;
mod finisher;
mod journals;
mod left;
pub mod line;
mod member;
mod mover;
mod moving;
mod place;
pub mod plan;
mod planning;
mod record;
mod room;
mod share;
mod status;
mod survey;
mod watch;
mod work;

pub use left::{left, stop};
pub use member::{Duty, Member, TASK_BYTES, TASK_FILES};
pub use record::{Moved, WorkerRecord};
pub use status::{FleetStatus, Phase, status};
pub use work::{FleetEnd, FleetReport, begin, work};
