//! Takes samples and says what they show; knows no study, no mechanism and no command.

pub mod conditions;
pub mod contamination;
pub mod log;
pub mod outcome;
pub mod process;
pub mod sample;
pub mod schedule;
pub mod session;
pub mod stats;
