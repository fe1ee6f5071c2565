//! Arguments of `thalweg receive`.

use clap::Args;
use std::{path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use super::{ProgressArgs, flag};

/// Takes files, or a stream, from another process on this machine
///
/// Waits for `thalweg send --to NAME` of the same user. A file gets its name only when all of it is
/// there and its checksum is the sender's; one that DST names is replaced in that moment. Into a
/// folder go any number of files under the names the sender gives them: names of one part, and only
/// with --force those that are there already. What goes wrong with one does not keep back the
/// others. Standard output and devices get the bytes as they come.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReceiveArgs {
    /// The name to listen at, or the path of a socket to make, with a slash in it
    #[arg(long, value_name = "NAME")]
    pub from: String,
    /// Where to put it: a file, a folder that is there, or `-` for standard output
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// How long to wait for the other side
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Do not let the sender read or write this process's memory, although it is of the same user
    #[arg(long)]
    pub no_trust: bool,
    /// Replace files in the folder that have the name of one that comes
    #[arg(short, long)]
    pub force: bool,
    /// Say at the end also what was not used and why, and the processor time
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

Exit status: 0 all is there; 1 not all of it came, or a checksum differs; 2 usage; 4 no way between
these two works.";
