//! Arguments of `thalweg copy`.

use clap::{Args, ValueEnum};
use std::{ffi::OsString, path::PathBuf};
use thalweg_core::quantity::parse_rate;

use super::{Choice, ProgressArgs, flag};

/// Copies files and trees
///
/// Takes cp's usual flags. A copy appears under its final name only when it is whole. `-` is
/// standard input or standard output.
///
/// A file that is replaced becomes another inode: other hard links to it keep the old contents, and
/// another user's file becomes ours where its owner cannot be kept. Where its folder takes no new
/// file it is written into, as cp does. --inplace writes into it always. docs/copy.md has more.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CopyArgs {
    /// What to copy, then where to
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    pub paths: Vec<PathBuf>,

    /// Copy folders with all they hold
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "dereference_args"])]
    pub no_dereference: bool,
    /// Follow every symbolic link of the source
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "dereference_args"])]
    pub dereference: bool,
    /// Follow symbolic links named on the command line only
    #[arg(short = 'H', overrides_with_all = ["no_dereference", "dereference"])]
    pub dereference_args: bool,
    /// Keep mode, owner, times, ACLs and extended attributes
    #[arg(short, long)]
    pub preserve: bool,
    /// Everything: -r -P -p, and hard links
    #[arg(short, long)]
    pub archive: bool,
    /// Copy only what is newer than the destination, or missing there
    #[arg(short, long)]
    pub update: bool,
    /// Never overwrite, whatever -f and -i say
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Ask before overwriting
    #[arg(short, long)]
    pub interactive: bool,
    /// Remove a destination that cannot be opened, and try again
    #[arg(short, long)]
    pub force: bool,
    /// DST is a file, never a folder to copy into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
    /// Copy every SRC into this folder
    #[arg(short, long, value_name = "DIR")]
    pub target_directory: Option<PathBuf>,
    /// Name what is done
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Keep what would be overwritten under another name
    #[arg(long, value_name = "CONTROL", value_enum)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "existing")]
    pub backup: Option<Backup>,
    /// What the name of a simple backup ends with
    #[arg(short = 'S', long, value_name = "SUFFIX")]
    pub suffix: Option<OsString>,

    /// Holes in files
    #[arg(long, value_name = "WHEN", env = "THALWEG_SPARSE", hide_env = true)]
    #[arg(value_enum, default_value_t = Sparse::Auto)]
    pub sparse: Sparse,
    /// Clones that share blocks until one is written
    #[arg(long, value_name = "WHEN", env = "THALWEG_REFLINK", hide_env = true)]
    #[arg(value_enum, default_value_t = Reflink::Auto)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub reflink: Reflink,

    /// How many files to copy at a time
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write into the destination itself instead of a temporary file beside it; no backups
    #[arg(long)]
    pub inplace: bool,
    /// Go on where an interrupted copy of the same sources stopped
    #[arg(long)]
    pub resume: bool,
    /// Read everything again and compare, what is left as it was too; with --resume what differs is
    /// copied again, else it is named
    #[arg(long, value_name = "HASH", env = "THALWEG_VERIFY", hide_env = true, value_enum)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "blake3")]
    pub verify: Option<Verify>,
    /// What to put on stable storage before saying done
    #[arg(long, value_name = "WHAT", env = "THALWEG_FSYNC", hide_env = true)]
    #[arg(value_enum, default_value_t = Fsync::None)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "file")]
    pub fsync: Fsync,
    /// Move no more than this many bytes a second
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Say what would be copied, and copy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Measure first, for at most three seconds, and move by the winner
    #[arg(long, env = "THALWEG_TUNE", hide_env = true, value_parser = flag())]
    pub tune: bool,

    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

/// Names for what would be overwritten, as in cp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backup {
    /// No backups
    #[value(alias = "off")]
    None,
    /// name.~1~, name.~2~ ...
    #[value(alias = "t")]
    Numbered,
    /// Numbered if there are numbered ones already, else simple
    #[value(alias = "nil")]
    Existing,
    /// name~
    #[value(alias = "never")]
    Simple,
}

/// Holes in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sparse {
    /// Keep the source's
    Auto,
    /// Make one of every run of zeros
    Always,
    /// None
    Never,
}

/// Clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reflink {
    /// Where it works
    Auto,
    /// Or fail
    Always,
    /// Copy the bytes
    Never,
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Cryptographic
    Blake3,
    /// Fast
    Xxh3,
}

/// What reaches stable storage before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fsync {
    /// Every file
    File,
    /// Every file and every folder
    Dir,
    /// Nothing is waited for
    None,
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy --tune big.iso /mnt/usb/       measure, move by the winner, say what won
  thalweg copy -a --jobs 4 photos/ /backup/   a tree with everything that can be kept
  thalweg copy --resume -a photos/ /backup/   after an interruption
  thalweg copy --verify --fsync=file db.dump /mnt/nas/
  thalweg copy - /tmp/log < /dev/stdin        standard input into a file, whole or not at all

Exit status: 0 done; 1 failed, or data differ; 2 usage; 3 incomplete, and the same command with --resume
goes on, or the source changed while it was copied; 4 not supported here.";
