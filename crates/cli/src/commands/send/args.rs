//! Arguments of `thalweg send`.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use std::{path::PathBuf, time::Duration};
use thalweg_channel::bulk::MECHANISMS;
use thalweg_core::quantity::{parse_bytes, parse_duration};

use crate::args::{ProgressArgs, flag};

/// Send files or a stream to another process on this machine
///
/// The other process is `thalweg receive --from NAME`, which you can start before or after this command. Unless the
/// receiver uses --no-trust, regular files are passed as open, read-only descriptors, and the receiver copies them as
/// `thalweg copy` does. Other data, and all data with --as-bytes or --method, is copied from memory to memory, and the
/// receiver compares a checksum of each file. Sender and receiver agree on a method that works between them; `thalweg
/// list` shows all methods.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SendArgs {
    /// Name at which the receiver listens, or the path of its socket (with a slash)
    #[arg(long, value_name = "NAME")]
    pub to: String,
    /// Files to send, or `-` for standard input; for several files, the receiver needs a directory
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Wait this long for the receiver
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Use only this method; see `thalweg list`
    #[arg(long, value_name = "NAME", env = "THALWEG_BULK_METHOD", hide_env = true)]
    #[arg(value_parser = arm_names(), hide_possible_values = true)]
    pub method: Option<String>,
    /// Never use this method; may be repeated
    #[arg(long, value_name = "NAME", env = "THALWEG_NO_BULK_METHOD", hide_env = true)]
    #[arg(value_parser = arm_names(), hide_possible_values = true, value_delimiter = ',')]
    pub no_method: Vec<String>,
    /// Set a parameter of --method, such as slot=64K; may be repeated
    #[arg(long, value_name = "KNOB=VALUE", requires = "method", value_parser = knob)]
    pub knob: Vec<(String, u64)>,
    /// Send the data of files instead of open descriptors, and compare checksums
    #[arg(long, env = "THALWEG_AS_BYTES", hide_env = true, value_parser = flag())]
    pub as_bytes: bool,
    /// Send at most this many bytes at a time
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = parse_bytes)]
    pub buffer: u64,
    /// Do not use the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
    /// Also print the CPU time, and methods that were not used
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

fn arm_names() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(MECHANISMS.iter().map(|arm| arm.info().name))
}

fn knob(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected KNOB=VALUE, such as slot=64K")?;
    Ok((name.to_owned(), parse_bytes(value)?))
}

const EXAMPLES: &str = "\
Examples:
  thalweg receive --from job copy.img &       one process waits
  thalweg send --to job disk.img              the other sends
  thalweg send --to job *.img                 several, to a directory
  generate | thalweg send --to job -          a stream
  thalweg send --to job --method ring --knob slot=64K disk.img
  thalweg send --to /run/job.socket disk.img  a socket with a path

Exit status:
  0  everything was sent
  1  an error, or a checksum that differs
  2  wrong usage
  4  no method works between the two processes";
