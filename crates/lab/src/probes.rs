//! The questions that are asked with arms and [`measure`](crate::measure), one module each.

pub mod compare;
pub mod libc_thresholds;
mod other_work;
pub mod trial;
pub mod tune_copy;
pub mod tune_machine;
