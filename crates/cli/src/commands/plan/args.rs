//! Arguments of `thalweg plan`.

use clap::Args;
use std::path::PathBuf;
use thalweg_core::quantity::parse_bytes;

use crate::args::{Choice, flag};

/// Says which mechanism would move SRC to DST, and why no other
///
/// Every mechanism gets a verdict. Nothing is written to DST: mechanisms are tried on files without
/// a name in the two folders. `memory:`, `pipe:`, `unix:` and `tcp:` (also `tcp:HOST:PORT`) stand for ends that are not
/// there yet; a file of such a name is `./pipe:`. From `process:` or `loan:` (memory lent to the sender)
/// to `process:` (memory used before), `fresh:` or `huge:` the ways of `thalweg send` are judged.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// What would be moved: a file, a folder, a device, a FIFO, or `-` for standard input
    pub source: PathBuf,
    /// Where to; it need not exist. `-` is standard output
    pub sink: PathBuf,
    /// How many bytes, where the source does not say so or another number is meant
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    #[command(flatten)]
    pub choice: Choice,
    /// Name also the mechanisms that cannot do it here, and why
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    /// It is driven by steps that must not sleep, as the server does.
    #[arg(skip)]
    pub stepwise: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg plan disk.img /mnt/backup/
  thalweg plan --zero-copy - - < file | cat
  thalweg plan --size 64K --load loaded disk.img tcp:
  thalweg plan --size 1M memory: memory:
  thalweg plan --size 8M loan: process:
  thalweg plan --json /dev/zero /dev/null";
