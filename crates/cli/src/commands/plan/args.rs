//! Arguments of `thalweg plan`.

use clap::Args;
use std::path::PathBuf;
use thalweg_core::quantity::parse_bytes;

use crate::args::{MethodArgs, flag};

/// Show which method would copy SRC to DST, and why
///
/// thalweg writes nothing to DST. It tries the methods with unnamed files in the directories of SRC and DST. `memory:`,
/// `pipe:`, `unix:` and `tcp:` (also `tcp:HOST:PORT`) stand for endpoints that do not exist yet. If a file has such a
/// name, write `./pipe:`. To plan `thalweg send`, SRC is `process:` (memory of the sender) or `loan:` (shared memory
/// that thalweg provides). DST is `process:` (memory in use), `fresh:` (new memory) or `huge:` (huge pages).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// Source: a file, directory, device or FIFO; `-` is standard input
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Destination, which need not exist; `-` is standard output
    #[arg(value_name = "DST")]
    pub sink: PathBuf,
    /// Plan for this many bytes [default: the size of the source]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Also print the verdict on every method
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    #[command(flatten)]
    pub choice: MethodArgs,
    /// `true` if the steps of the transfer must not sleep, as in the server.
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
