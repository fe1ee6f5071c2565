//! Arguments of `thalweg pipe`.

use clap::Args;
use std::path::PathBuf;
use thalweg_core::quantity::{parse_bytes, parse_rate};

use super::{Choice, ProgressArgs, flag};

/// Moves standard input to standard output and to files, with progress
///
/// Enlarges the pipes it stands between to what the kernel grants, so that the programs on either
/// side profit too. Safe by default: with --zero-copy file pages go into the pipe by reference, and
/// a change of the file before the reader reads them shows.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PipeArgs {
    /// Write the bytes into this file too; may be given several times
    #[arg(long, value_name = "FILE")]
    pub tee: Vec<PathBuf>,
    /// Append to the files of --tee instead of emptying them first
    #[arg(long, requires = "tee")]
    pub append: bool,
    /// How many bytes to expect, for the percentage and the time left
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Stop after the bytes of --size, even if there are more
    #[arg(short = 'S', long, requires = "size", conflicts_with = "tee")]
    pub stop_at_size: bool,
    /// A label for the progress line
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Move no more than this many bytes a second
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Say at the end what was moved, and by what
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg pipe < dump.sql | mysql db          progress, and a larger pipe
  thalweg pipe --zero-copy < big | reader     pages by reference: the file must not change meanwhile
  tar c . | thalweg pipe --tee a.tar | ssh host tar x
  thalweg pipe --size 1G --stop-at-size < /dev/urandom > noise
  generate | thalweg pipe --size 10G --limit 20M > file

A file of --tee that fails is reported, the others go on, and the exit status is 1.";
