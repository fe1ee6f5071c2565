//! Arguments of `thalweg trial`.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use std::ffi::OsString;
use thalweg_lab::trial::{Bands, bands_given, kernel_names};

use crate::args::{MetricArgs, flag};

/// Runs a program under each copy kernel, and says which one it gains or loses by
///
/// The program is not changed: an object that the loader loads first takes its calls of memcpy,
/// memmove, mempcpy and memset. glibc's own copies, which no such object reaches, are tried with other
/// thresholds. The runs are interleaved, and the program as it is (libc) is what the others are
/// compared with. Its standard input is empty, and its output is not shown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TrialArgs {
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Kernels to try, with commas between; all that this processor runs without it
    #[arg(short, long, value_name = "NAMES", env = "THALWEG_KERNELS", hide_env = true)]
    #[arg(value_delimiter = ',', value_parser = kernels())]
    pub kernels: Option<Vec<String>>,
    /// What `tuned` is made of, by largest size: 256=mask256,16384=avx2; libc beyond
    #[arg(long, value_name = "BANDS", value_parser = bands_given)]
    pub bands: Option<Bands>,
    /// Thresholds of glibc to try: usual (this machine's cache sizes), none, or
    /// glibc.cpu.NAME=VALUE; may be given several times
    #[arg(long, value_name = "WHICH", default_value = "usual")]
    pub tunables: Vec<String>,
    #[command(flatten)]
    pub metric: MetricArgs,
    /// Rounds; each runs every arm once, and one of them twice
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub runs: u32,
    /// How many seconds one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Start this server under each kernel, and run the program, as it is, against it
    #[arg(long, value_name = "CMD", requires = "sign")]
    pub server: Option<String>,
    /// The server is ready when this command ends well
    #[arg(long, value_name = "CMD", requires = "server", group = "sign")]
    pub ready: Option<String>,
    /// The server is ready when this port of 127.0.0.1 takes connections
    #[arg(long, value_name = "PORT", requires = "server", group = "sign")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Repeats the order of the runs of an earlier trial
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
  thalweg trial --tunables glibc.cpu.x86_rep_movsb_threshold=24576 -- ./simulate

With --server, wall and printed numbers are the program's, cpu and maxrss the server's.

Exit status: 0 done; 1 the program failed, or gave no number, as it is or in some arm; 2 usage;
4 nothing can be preloaded into it.

Words that are new to you (arm, cell, round, session, regret): docs/reference/glossary.md.";
