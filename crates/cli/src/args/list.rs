//! Arguments of `thalweg list`.

use clap::Args;

use super::flag;

/// Lists the mechanisms this build knows
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg list
  thalweg list --json | jq -r '.mechanisms[].name'";
