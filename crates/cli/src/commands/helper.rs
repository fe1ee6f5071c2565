//! `thalweg helper`: runs helper processes for other commands.

use clap::Args;

use super::Subcommand;
use crate::exit::{CommandFailure, Exit};

/// Run a helper process of another command
#[derive(Args, Debug)]
pub struct HelperArgs {
    /// Kind of helper, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Subcommand for HelperArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        // The helper itself writes its output: to stdout for the process that started it, to stderr for the user.
        #[cfg(feature = "lab")]
        let status = thalweg_lab::helper::run(&self.words);
        #[cfg(not(feature = "lab"))]
        let status = {
            use thalweg_measure::helper::{HELPERS, run};
            run(&[HELPERS], &self.words)
        };
        std::process::exit(status);
    }
}
