//! Arguments of `thalweg receive`.

use clap::Args;
use std::{path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use crate::args::{FsyncArgs, ProgressArgs, flag};

/// Receive files or a stream from another process on this machine
///
/// Waits for `thalweg send --to NAME` of the same user. A file appears under its name only when it is complete. If the
/// sender sends the bytes instead of passing its open file, their checksum must also match. If DST names an existing
/// file, the complete file replaces it. If DST is a directory, it receives any number of files under the names that the
/// sender gives. Existing files in it are replaced only with --force. If one file fails, thalweg continues with the
/// others. Standard output and devices receive the data immediately.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReceiveArgs {
    /// Name to listen at, or the path of a new socket (with a slash)
    #[arg(long, value_name = "NAME")]
    pub from: String,
    /// Destination: a file, an existing directory, or `-` for standard output
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// Wait this long for the sender
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Accept no open files from the sender, and give it no access to memory of this process
    #[arg(long)]
    pub no_trust: bool,
    /// Do not use the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
    /// Replace existing files in the directory
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub durable: FsyncArgs,
    /// Also print the CPU time, and methods that were not used
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg receive --from job copy.img
  thalweg receive --from job copies/
  thalweg receive --from job - | gzip > copy.gz
  thalweg receive --from job --wait 1h copy.img
  thalweg receive --from job --json copy.img | jq .mechanism

Exit status:
  0  everything was received
  1  an error, or a checksum that differs
  2  wrong usage
  4  no method works between the two processes";
