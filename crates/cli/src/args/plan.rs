//! Arguments of `thalweg plan`.

use clap::Args;
use std::path::PathBuf;

use super::{Choice, flag};

/// Says which mechanism would move SRC to DST, and why no other
///
/// Every mechanism gets a verdict. Nothing is written to DST: mechanisms are tried on files without
/// a name in the two folders.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// What would be moved: a file, a folder, a device, a FIFO, or `-` for standard input
    pub source: PathBuf,
    /// Where to; it need not exist. `-` is standard output
    pub sink: PathBuf,
    #[command(flatten)]
    pub choice: Choice,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg plan disk.img /mnt/backup/
  thalweg plan --zero-copy - - < file | cat
  thalweg plan --json /dev/zero /dev/null";
