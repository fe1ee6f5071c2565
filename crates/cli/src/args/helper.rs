//! Arguments of `thalweg helper`, which other commands start.

use clap::Args;

/// Helps a measurement; started by other commands
#[derive(Args, Debug)]
pub struct HelperArgs {
    /// The kind of helper, and what it needs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}
