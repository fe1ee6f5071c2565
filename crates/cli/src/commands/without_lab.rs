//! Replaces the commands of the lab in a build without the feature `lab`.

use clap::Args;
use std::ffi::OsString;

use super::Subcommand;
use crate::exit::{CommandFailure, Exit};

/// Not in this build
#[derive(Args, Debug)]
#[command(hide = true, disable_help_flag = true)]
pub struct LabArgs {
    /// Any arguments: they are not used
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

impl Subcommand for LabArgs {
    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        Err(missing("study, report and trial"))
    }
}

fn missing(what: &str) -> CommandFailure {
    let reason = format!(
        "this thalweg was built without the feature `lab`, which {what} need; the packages of thalweg \
         and `cargo install thalweg-cli` include it"
    );
    CommandFailure::new(Exit::Unsupported, reason)
}

pub mod report {
    pub use super::LabArgs as ReportArgs;
}

pub mod study {
    pub use super::LabArgs as StudyArgs;
}

pub mod trial {
    pub use super::LabArgs as TrialArgs;
}

/// Replaces the part of `doctor` that reports on libc's memcpy.
pub mod copies {
    use crate::{commands::doctor::DoctorArgs, exit::CommandFailure};

    pub fn look(args: &DoctorArgs) -> Result<Option<()>, CommandFailure> {
        if args.memcpy { Err(super::missing("the measurements of --memcpy")) } else { Ok(None) }
    }

    pub fn printed(_: &Option<()>) -> String {
        "  thresholds unknown: this thalweg was built without the feature `lab`\n".to_owned()
    }
}
