//! Measures copy mechanisms and writes the machine profile.
//!
//! [`measure`] samples arms in interleaved rounds and computes ratios with intervals. [`arms`] are the variants that
//! are sampled. [`probes`] implement the measuring commands, one module per command. A [`study`] is a published
//! experiment restated as data; [`report`] renders its results.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//! use thalweg_core::{Guarantees, Profile, Request};
//! use thalweg_lab::probes::tune_copy::{TuneJob, tune};
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
//! # Ok::<(), thalweg_lab::probes::tune_copy::TuneError>(())
//! ```
#![forbid(unsafe_code)]
// This crate is internal to the command line, so not every public item needs a doc comment.
#![allow(missing_docs)]

pub mod arms;
pub mod helper;
pub mod measure;
pub mod probes;
pub mod report;
mod scratch;
pub mod study;
