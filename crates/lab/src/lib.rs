//! Measures mechanisms honestly and writes the machine profile.
//!
//! Reading order: [`sample`] is one timed piece of work, [`rounds`] interleaves the arms, [`stats`]
//! makes ratios with intervals of them, [`contamination`] says which samples to doubt. Put together:
//! [`tune`] for a copy that is about to be made, [`survey`] for the profile of the machine, [`trial`]
//! for an unmodified program under each copy kernel, [`thresholds`] for libc's own settings, [`study`]
//! for a published experiment, whose [`report`] people read.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//! use thalweg_core::{Flow, Guarantees, Profile, Request};
//! use thalweg_lab::tune::{Job, tune};
//! use thalweg_tree::CopyOptions;
//!
//! let mut request = Request::default();
//! let found = tune(&Job {
//!     sources: &["big.iso".into()],
//!     destination: Path::new("/mnt/usb"),
//!     options: &CopyOptions::default(),
//!     request: request.clone(),
//!     needs: Guarantees::default(),
//!     budget: Duration::from_secs(3),
//!     seed: 1,
//!     stop: &|| Flow::Continue,
//! })?;
//! for arm in &found.arms {
//!     println!("{} {:?} {:?}", arm.name, arm.ratio_to_cp, arm.against_cp);
//! }
//! let mut profile = Profile::new();
//! found.teach(&mut profile, &mut request);
//! # Ok::<(), thalweg_lab::tune::TuneError>(())
//! ```
#![forbid(unsafe_code)]

pub mod conditions;
pub mod contamination;
pub mod helper;
mod moving;
pub mod peer;
pub mod report;
pub mod rounds;
pub mod sample;
mod scratch;
pub mod stats;
pub mod study;
pub mod survey;
pub mod thresholds;
pub mod trial;
pub mod tune;
pub mod works;
