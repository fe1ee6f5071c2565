//! Runs published experiments again and reports the results.
//!
//! [`arms`] are the variants that a study samples. A [`study`] is a published experiment restated as data; [`report`]
//! renders its results. [`trial`] runs a program under each copy kernel, and [`libc_thresholds`] evaluates libc's own
//! settings. The rounds and statistics are those of `thalweg-measure`.
#![forbid(unsafe_code)]
// This crate is internal to the command line, so not every public item needs a doc comment.
#![allow(missing_docs)]

pub mod arms;
pub mod held_out;
pub mod helper;
pub mod libc_thresholds;
pub mod report;
pub mod study;
pub mod trial;
