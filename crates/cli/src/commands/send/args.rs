//! Arguments of `thalweg send`.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use std::{path::PathBuf, time::Duration};
use thalweg_channel::bulk::MECHANISMS;
use thalweg_core::quantity::{parse_bytes, parse_duration};

use crate::args::{ProgressArgs, flag};

/// Hands files, or a stream, to another process on this machine
///
/// The other process is `thalweg receive --from NAME`, started before or after. A regular file that is
/// to become a file again is handed over open, for reading only, if both trust each other: the other
/// side copies it as `thalweg copy` does, by a clone where that works. Everything else, and all with
/// --as-bytes or --method, goes from memory to memory, and the other side compares a checksum of every
/// file. For that the two agree on a way that works between them (`thalweg list` shows all); one that
/// was asked for by --method is used or refused, never replaced. The line at the end names the way.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SendArgs {
    /// The name the other side listens at, or the path of its socket, with a slash in it
    #[arg(long, value_name = "NAME")]
    pub to: String,
    /// What to send: several files go into a folder of the other side; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// How long to wait for the other side
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Use this way and no other (see `thalweg list`)
    #[arg(long, value_name = "NAME", env = "THALWEG_BULK_METHOD", hide_env = true)]
    #[arg(value_parser = arm_names(), hide_possible_values = true)]
    pub method: Option<String>,
    /// Never use this way; may be given several times
    #[arg(long, value_name = "NAME", env = "THALWEG_NO_BULK_METHOD", hide_env = true)]
    #[arg(value_parser = arm_names(), hide_possible_values = true, value_delimiter = ',')]
    pub no_method: Vec<String>,
    /// Set a knob of the way in --method: `slot=64K`; may be given several times
    #[arg(long, value_name = "KNOB=VALUE", requires = "method", value_parser = knob)]
    pub knob: Vec<(String, u64)>,
    /// Send the bytes of files and have their checksums compared; hand over no open file
    #[arg(long, env = "THALWEG_AS_BYTES", hide_env = true, value_parser = flag())]
    pub as_bytes: bool,
    /// Bytes to hand over at a time
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = parse_bytes)]
    pub buffer: u64,
    /// Do not look into the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
    /// Say at the end also what was not used and why, and the processor time
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

fn arm_names() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(MECHANISMS.iter().map(|arm| arm.info().name))
}

fn knob(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write it as KNOB=VALUE, as in slot=64K")?;
    Ok((name.to_owned(), parse_bytes(value)?))
}

const EXAMPLES: &str = "\
Examples:
  thalweg receive --from job copy.img &          one process waits
  thalweg send --to job disk.img                 the other sends
  thalweg send --to job *.img                    several, to a `receive --from job FOLDER`
  generate | thalweg send --to job -             a stream
  thalweg send --to job --method ring --knob slot=64K disk.img
  thalweg send --to /run/job.socket disk.img     a socket at a place of your own

Exit status: 0 all was handed over; 1 not all of it, or a checksum differs; 2 usage; 4 no way between
these two works.";
