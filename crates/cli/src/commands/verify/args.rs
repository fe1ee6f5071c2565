//! Arguments of `thalweg verify`.

use clap::Args;
use std::path::PathBuf;

use crate::args::{HashName, ProgressArgs};

/// Compare a copy with its source or with a manifest
///
/// Compares all files byte by byte and prints the files that differ, are missing or are extra. Use the operands of
/// `thalweg copy`: `verify SRC DST` compares SRC with DST, or with DST/NAME if SRC was copied into the directory DST.
/// With -T, it always compares with DST, and with -t, always with DST/NAME.
///
/// On a terminal, findings appear at once. In a file or a pipe, they appear at the end, sorted by path.
#[derive(Args, Debug)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// Sources, then the copy; with --manifest only the copy
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    pub paths: Vec<PathBuf>,

    /// Compare with this manifest; `-` is standard input
    ///
    /// The manifest may come from `thalweg manifest`, sha256sum, b3sum or xxhsum.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["into", "no_target_directory"])]
    pub manifest: Option<PathBuf>,
    /// Hash function of the manifest, if its lines do not name it
    #[arg(long, value_name = "HASH", value_enum, requires = "manifest")]
    pub hash: Option<HashName>,
    /// Ignore files that the manifest does not list
    #[arg(long, requires = "manifest")]
    pub ignore_extra: bool,
    /// Also compare mode, owner, modification time, extended attributes and hard links
    ///
    /// With --manifest FILE, compare with FILE.attributes, which `thalweg manifest --attributes` writes.
    #[arg(long)]
    pub attributes: bool,
    /// Compare with DST itself, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "into")]
    pub no_target_directory: bool,
    /// Compare all sources with their copies in this directory
    #[arg(short = 't', long = "target-directory", value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Read from the device: first sync the files and drop them from the page cache
    #[arg(long, visible_alias = "device")]
    pub cold: bool,
    /// Use this many threads [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    #[command(flatten)]
    pub shown: ProgressArgs,
}

/// Two forms, because a command line with --manifest has no SRC.
const USAGE: &str = "\
thalweg verify [OPTIONS] <SRC>... <DST>
       thalweg verify [OPTIONS] --manifest <FILE> <DST>";

const EXAMPLES: &str = "\
Examples:
  thalweg copy -a photos /backup/ && thalweg verify photos /backup/
  thalweg verify --attributes photos /backup/photos
  thalweg verify --manifest photos.b3 /backup/photos
  sha256sum * >SUMS; thalweg verify --manifest SUMS .

With --json, each finding is one JSON object per line, and the last line has the \
totals.

Exit status:
  0    equal
  1    a file differs, is missing, extra or unreadable
  2    wrong usage
  128  plus the number of the signal that interrupted the command";
