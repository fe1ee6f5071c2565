//! `thalweg helper`, which other commands start.

use clap::Args;

use super::Subcommand;
use crate::exit::{Exit, Failure};

/// Helps a measurement; started by other commands
#[derive(Args, Debug)]
pub struct HelperArgs {
    /// The kind of helper, and what it needs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Subcommand for HelperArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, _color: bool) -> Result<Exit, Failure> {
        // It answers for itself: on stdout to the one that started it, on stderr to people.
        std::process::exit(thalweg_lab::helper::run(&self.words));
    }
}
