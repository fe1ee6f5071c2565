//! Endpoints, guarantees, the list of mechanisms, the planner and the driver.
//!
//! Reading order: [`endpoint`] and [`guarantee`] say what is asked for, [`mechanism`] what a way of
//! moving bytes is, [`mechanisms`] lists them all, [`planner`] chooses, [`driver`] moves.
#![forbid(unsafe_code)]

pub mod alias;
pub mod conduit;
pub mod driver;
pub mod endpoint;
pub mod error;
pub mod facts;
pub mod fan;
pub mod growth;
pub mod guarantee;
pub mod lanes;
pub mod mechanism;
pub mod mechanisms;
pub mod planner;
pub mod probe;
pub mod profile;
pub mod reopen;
pub mod scratch;
pub mod shown;
pub mod tuning;

pub use driver::{Driver, Flow, Outcome, Report, StepDown, Watch};
pub use endpoint::{End, Kind, Sink, Source, Transfer};
pub use error::{Error, Side, Unfit};
pub use facts::{EndFacts, Facts};
pub use guarantee::{Guarantees, Prefer};
pub use mechanism::{Info, Knob, Mechanism, Mover, Pair, Role, Unit, advance_by_steps};
pub use mechanisms::MECHANISMS;
pub use planner::{Judgement, Plan, Request, Verdict};
pub use profile::Profile;
pub use shown::{Shown, shown, shown_lines};
pub use tuning::Tuning;
