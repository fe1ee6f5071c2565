//! Measures copy mechanisms and writes the machine profile.
//!
//! An [`experiment`] samples [`arms`] in interleaved rounds and computes ratios with intervals. The measuring commands
//! build on it, one module each: [`tune_machine`], [`tune_copy`] and [`compare`]. Studies of published experiments are
//! in the crate `thalweg-lab`.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//! use thalweg_core::{Guarantees, Profile, Request};
//! use thalweg_measure::tune_copy::{TuneJob, tune};
//! use thalweg_tree::CopyOptions;
//!
//! let mut request = Request::default();
//! let found = tune(&TuneJob {
//!     sources: &["big.iso".into()],
//!     destination: Path::new("/mnt/usb"),
//!     options: &CopyOptions::default(),
//!     request: request.clone(),
//!     needs: Guarantees::default(),
//!     budget: Duration::from_secs(3),
//!     seed: 1,
//!     stop: &|| Ok(()),
//! })?;
//! for arm in &found.arms {
//!     println!("{} {:?} {:?}", arm.name, arm.ratio_to_cp, arm.against_cp);
//! }
//! let mut profile = Profile::new();
//! found.teach(&mut profile, &mut request);
//! # Ok::<(), thalweg_measure::tune_copy::TuneError>(())
//! ```
#![forbid(unsafe_code)]
// This crate is internal to the command line, so not every public item needs a doc comment.
#![allow(missing_docs)]

use thalweg_core::Cancelled;

pub mod arms;
pub mod busy;
pub mod compare;
pub mod conditions;
pub mod contamination;
pub mod experiment;
pub mod helper;
pub mod line;
pub mod load;
pub mod log;
mod other_work;
pub mod outcome;
pub mod preset;
pub mod process;
pub mod processors;
pub mod sample;
pub mod schedule;
pub mod scratch;
pub mod session;
pub mod stats;
pub mod tune_copy;
pub mod tune_machine;

/// Called repeatedly to ask whether to continue; returns [`Cancelled`] to stop.
pub type StopCheck<'s> = dyn Fn() -> Result<(), Cancelled> + Sync + 's;
