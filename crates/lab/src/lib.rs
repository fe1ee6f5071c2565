//! Measures mechanisms honestly and writes the machine profile.
//!
//! [`measure`] takes samples of arms in interleaved rounds and says what they show; [`arms`] are what
//! is sampled; [`probes`] ask the questions of one command each; a [`study`] is a published experiment,
//! whose [`report`] people read.
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
// Only the command line uses it: a comment that repeats a name helps no reader.
#![allow(missing_docs)]

pub mod arms;
pub mod helper;
pub mod measure;
pub mod probes;
pub mod report;
mod scratch;
pub mod study;
