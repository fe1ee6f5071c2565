//! Takes samples and evaluates them. Independent of studies, mechanisms and commands.

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

/// Called repeatedly to ask whether to continue; returns [`Cancelled`] to stop.
pub type Stop<'s> = dyn Fn() -> Result<(), Cancelled> + Sync + 's;
