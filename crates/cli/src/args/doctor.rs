//! Arguments of `thalweg doctor`.

use clap::Args;
use std::path::PathBuf;

use super::flag;

/// Says what works on this machine, what does not, and why
///
/// Every mechanism is tried by its real calls, on tiny files without a name, on pipes and on
/// sockets of its own. Nothing is left behind.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Try files in this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Measure whether other thresholds of libc's memcpy would help, in fresh processes; some 20 s
    #[arg(long)]
    pub memcpy: bool,
    /// Name also what each mechanism cannot do, and why
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg doctor
  thalweg doctor --at /mnt/data
  thalweg doctor --memcpy
  thalweg doctor --json | jq '.mechanisms[] | {name, fails}'

\"shared\" for a mechanism: after such a move the source's later changes still show in the sink.";
