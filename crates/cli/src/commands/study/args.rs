//! Arguments of `thalweg study`.

use clap::Args;
use std::{path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use crate::args::flag;

/// Run published experiments on this machine and judge their claims
///
/// Without arguments, lists the studies. A study is a TOML file: one built into this program, one in the directory
/// `studies`, or one at any path. docs/reference/studies.md describes the format. Each run consists of sessions, and
/// each session is a new process. Each round of a session runs all variants in random order. Each verdict is based on
/// the confidence interval over the sessions.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StudyArgs {
    /// Studies to run, by id or file; `all` for all
    #[arg(value_name = "STUDY")]
    pub studies: Vec<String>,
    /// Run 3 sessions of 10 rounds with few sizes
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Run 6 sessions of 5 rounds with all sizes of the articles
    #[arg(long)]
    pub full: bool,
    /// Start over instead of continuing an unfinished run
    #[arg(long)]
    pub fresh: bool,
    /// Run this many sessions [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sessions: Option<u32>,
    /// Run this many rounds per session [default: 15]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Pause at least this long between two sessions of a study [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub pause: Option<Duration>,
    /// Duration of one sample [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub sample: Option<Duration>,
    /// Seed of the random order
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run on these CPUs only, such as 0,2
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pin: Vec<usize>,
    /// Run only these test cases, as named in the study
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run only these sizes, as written in the study
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<String>,
    /// Create test files in this directory, whose file system is measured [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Save results in this directory [default: $XDG_STATE_HOME/thalweg/studies]
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Add the sessions of this run to a saved result of this machine, and judge it again
    #[arg(long, value_name = "RESULT", conflicts_with_all = ["save", "no_save", "check", "rejudge"])]
    pub extend: Option<PathBuf>,
    /// Do not save results
    #[arg(long, conflicts_with = "save")]
    pub no_save: bool,
    /// Also print the reasons and all measurements
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    /// Write every sample to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new", "check", "rejudge"])]
    pub csv: Option<PathBuf>,
    /// Check the study files, and try every variant once; measure nothing
    #[arg(long)]
    pub check: bool,
    /// Exit with 0 instead of 3 if some variants cannot run here
    #[arg(long)]
    pub allow_missing: bool,
    /// Write the template of a study: NAME.toml, NAME.c and worker.h
    #[arg(long, value_name = "NAME", conflicts_with_all = ["studies", "check", "rejudge"])]
    pub new: Option<PathBuf>,
    /// Judge saved results by the current studies; run nothing
    #[arg(long, value_name = "RESULT", num_args = 1.., conflicts_with_all = ["studies", "check"])]
    pub rejudge: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  thalweg study                      list the studies, with results
  thalweg study 002 --quick          run one
  thalweg study all                  run all
  thalweg study all --full           run all sizes of the articles; continue if it was interrupted
  thalweg study 002 --only threads --sessions 12 --extend MACHINE/DATE/002.json
  thalweg study ./mine.toml --csv samples.csv
  thalweg study --new mine           write a template
  thalweg study --check ./mine.toml  check a study
  thalweg study --rejudge ~/.local/state/thalweg/studies
  thalweg study --rejudge studies/results/MACHINE/DATE/002.json

A claim can have two verdicts: as published, with the programs, sizes and memory state of \
the article, and under modern conditions. A claim is reproduced \
if the whole interval supports it, and contradicted if the whole interval is against it. \
It is undecided otherwise. It is also undecided if the distance between the ratio and a \
limit of the claim is smaller than the noise of the run.

An interrupted run keeps its finished sessions, and the same command continues it. \
--no-save keeps nothing.

Exit status:
  0  success
  1  a variant delivered wrong data, or an error
  2  wrong usage
  3  some variants cannot run here

Terms (session, round, noise): docs/reference/glossary.md.";
