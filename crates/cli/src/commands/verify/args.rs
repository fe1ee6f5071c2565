//! Arguments of `thalweg verify`.

use clap::Args;
use std::path::PathBuf;

use crate::args::{HashName, ProgressArgs};

/// Compares a copy with its source, or with a manifest
///
/// Every file is read on both sides and compared byte by byte; what differs, is missing or extra is
/// named on standard output, with the first byte that differs. The operands are those of the copy:
/// `verify SRC DST` compares SRC with DST itself; where DST is a folder that SRC was copied into,
/// so that only DST/NAME can match, it compares that. -T and -t say which is meant.
///
/// Into a file or a pipe the findings are sorted by path and printed at the end; a terminal shows each at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// What was copied, then where it is now; with --manifest only the latter
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    pub paths: Vec<PathBuf>,

    /// Compare with the lines of this file, as `thalweg manifest`, sha256sum, b3sum and xxhsum
    /// write them; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["into", "no_target_directory"])]
    pub manifest: Option<PathBuf>,
    /// What the lines of the manifest hold, if they do not tell
    #[arg(long, value_name = "HASH", value_enum, requires = "manifest")]
    pub hash: Option<HashName>,
    /// Files that the manifest does not have are no finding
    #[arg(long, requires = "manifest")]
    pub ignore_extra: bool,
    /// Compare mode, owner, time of modification, extended attributes and hard links too; with --manifest
    /// FILE by what FILE.attributes says, which `thalweg manifest --attributes` writes
    #[arg(long)]
    pub attributes: bool,
    /// DST itself is the copy, never a folder with the copy in it
    #[arg(short = 'T', long, conflicts_with = "into")]
    pub no_target_directory: bool,
    /// Every SRC was copied into this folder
    #[arg(short = 't', long = "target-directory", value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Sync the files and drop their pages from the page cache first, so that the device is read
    #[arg(long, visible_alias = "device")]
    pub cold: bool,
    /// How many threads read
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy -a photos /backup/ && thalweg verify photos /backup/
  thalweg verify --attributes photos /backup/photos
  thalweg verify --manifest photos.b3 /backup/photos
  sha256sum * >SUMS; thalweg verify --manifest SUMS .

With --json every finding is a line of JSON, and the last line is the sum.
Exit status: 0 the same; 1 something differs, is missing, extra or cannot be read; 2 usage;
128 and the signal's number when interrupted.";
