//! Endpoints, guarantees, the list of mechanisms, the planner and the driver.
//!
//! Reading order: [`endpoint`] and [`guarantee`] describe a transfer. [`mechanism`] is the
//! interface of a mechanism, and [`mechanisms`] lists all of them. [`select`] contains the rule of
//! every choice, [`plan`] chooses by this rule, and [`driver`] moves the bytes.
//!
//! ```
//! use thalweg_core::{Driver, Facts, Plan, Request, Transfer};
//!
//! # let folder = tempfile::tempdir()?;
//! # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
//! # std::fs::write(&from, "some bytes")?;
//! let (source, sink) = (std::fs::File::open(&from)?, std::fs::File::create(&to)?);
//! let mut transfer = Transfer::between(&source, &sink)?;
//! let plan = Plan::make(&Facts::of(&transfer), &Request::default(), None);
//! for verdict in &plan.verdicts {
//!     println!("{}: {:?}", verdict.mechanism, verdict.judgement);
//! }
//! let report = Driver::default().run(&mut transfer, &plan, &mut ()).into_result()?;
//! assert_eq!(report.bytes, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

// Hidden: only for the other crates of this project.
#[doc(hidden)]
pub mod alias;
#[doc(hidden)]
pub mod atomic_file;
pub mod bands;
pub mod buffer_pool;
mod buffers;
#[doc(hidden)]
pub mod cadence;
pub mod cancel;
#[doc(hidden)]
pub mod changed;
pub mod driver;
pub mod endpoint;
pub mod error;
pub mod escape;
#[doc(hidden)]
pub mod exact;
pub mod facts;
#[doc(hidden)]
pub mod failed;
pub mod guarantee;
mod length_guard;
pub mod mechanism;
pub mod mechanisms;
#[doc(hidden)]
pub mod multicast;
mod pipe_buffer;
pub mod plan;
pub mod probe;
pub mod profile;
#[doc(hidden)]
pub mod quantity;
#[doc(hidden)]
pub mod rate_limit;
mod reopen;
#[doc(hidden)]
pub mod scratch;
pub mod select;

pub mod trusted_file;
pub mod tuning;
mod uring_pipeline;

pub use cancel::Cancelled;
pub use driver::{Driver, Outcome, Report, Step, StepDown, TransferRun, Watch};
pub use endpoint::{End, Kind, Sink, Source, Transfer};
pub use error::{Error, Side, Unfit};
pub use escape::{Escaped, shown, shown_lines};
pub use facts::{EndFacts, Facts, is_sealed};
pub use guarantee::{Guarantees, Prefer};
pub use mechanism::{
    BETWEEN_PROCESSES, Blocks, Info, Knob, Mechanism, Mover, Nature, Pair, Role, Unit,
    advance_by_steps,
};
pub use mechanisms::MECHANISMS;
pub use plan::{Plan, Request};
pub use profile::Profile;
pub use select::{Judgement, Verdict};
/// Detection of processor features, including those that the user hides.
pub use thalweg_kernels::cpu;
pub use tuning::Tuning;

/// Runs the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
