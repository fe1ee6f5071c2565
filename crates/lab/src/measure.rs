//! Takes samples and says what they show; knows no study, no mechanism and no command.

use thalweg_core::Cancelled;

pub mod busy;
pub mod conditions;
pub mod contamination;
pub mod experiment;
pub(crate) mod line;
pub mod log;
pub mod outcome;
pub mod process;
pub mod sample;
pub mod schedule;
pub mod session;
pub mod stats;

/// Asked again and again whether to go on.
pub type Stop<'s> = dyn Fn() -> Result<(), Cancelled> + Sync + 's;
