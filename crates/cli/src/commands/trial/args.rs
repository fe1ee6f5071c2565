//! Arguments of `thalweg trial`.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use std::ffi::OsString;
use thalweg_lab::trial::{KernelBands, bands_given, kernel_names};

use crate::args::{MetricArgs, flag};

/// Run a program with each copy kernel and compare its speed
///
/// The program is not changed: an object, preloaded with LD_PRELOAD, handles its calls of memcpy, memmove, mempcpy and
/// memset. The object cannot replace copies inside glibc; for these, `trial` tries other thresholds of glibc. The
/// variants alternate, and each is compared with the unchanged program (libc). The standard input of the program is
/// empty, and its output is not shown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TrialArgs {
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Kernels to try, separated by commas [default: all that this CPU supports]
    #[arg(short, long, value_name = "NAMES", env = "THALWEG_KERNELS", hide_env = true)]
    #[arg(value_delimiter = ',', value_parser = kernels())]
    pub kernels: Option<Vec<String>>,
    /// Kernels by size for the variant `tuned`; 256=mask256,16384=avx2 means mask256 up to 256 bytes, avx2 up to 16384,
    /// then libc [default: from the profile]
    #[arg(long, value_name = "BANDS", value_parser = bands_given)]
    pub bands: Option<KernelBands>,
    /// Thresholds of glibc to try: usual, none or glibc.cpu.NAME=VALUE; may be repeated
    ///
    /// `usual` means the cache sizes of this machine.
    #[arg(long, value_name = "WHICH", default_value = "usual")]
    pub tunables: Vec<String>,
    #[command(flatten)]
    pub metric: MetricArgs,
    /// Number of rounds; each runs every variant once, and one of them a second time
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub runs: u32,
    /// Limit the time of one run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Run this server with each kernel, and the unchanged program as its client
    #[arg(long, value_name = "CMD", requires = "sign")]
    pub server: Option<String>,
    /// The server is ready when this command succeeds
    #[arg(long, value_name = "CMD", requires = "server", group = "sign")]
    pub ready: Option<String>,
    /// The server is ready when this port of 127.0.0.1 accepts connections
    #[arg(long, value_name = "PORT", requires = "server", group = "sign")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Seed of the random order, to repeat an earlier trial
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

fn kernels() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(kernel_names())
}

const EXAMPLES: &str = "\
Examples:
  thalweg trial -- sqlite3 :memory: '.read queries.sql'
  thalweg trial --kernels avx2,rep-movsb --metric cpu --runs 20 -- git log -p
  thalweg trial --metric 'regex:([0-9.]+) requests' --port 7777 \\
      --server 'redis-server --port 7777 --bind 127.0.0.1' \\
      -- redis-benchmark -p 7777 -t get -d 16384 -n 20000
  thalweg trial --tunables glibc.cpu.x86_rep_movsb_threshold=24576 -- ./sim

With --server, wall time and printed numbers are those of the program. CPU time and \
memory are those of the server.

Exit status:
  0  success
  1  the program failed or printed no number, in any variant
  2  wrong usage
  4  nothing can be preloaded into the program

Terms (variant, round, noise): docs/reference/glossary.md.";
