//! Arguments of `thalweg study`.

use clap::Args;
use std::{path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use crate::args::flag;

/// Runs published experiments on this machine and says which of their claims hold here
///
/// Without a study, lists them. A study is a TOML file: one of the folder `studies`, one that this binary
/// carries, or any path; docs/reference/studies.md says how one is written.
/// Each run is a number of fresh processes; in each, the ways take turns in random order. A verdict
/// comes from the interval over the processes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StudyArgs {
    /// Which studies, by id or by file; `all` for every one
    #[arg(value_name = "STUDY")]
    pub studies: Vec<String>,
    /// 3 processes of 10 rounds, the study's few sizes: a look
    #[arg(long, conflicts_with = "strict")]
    pub quick: bool,
    /// 12 processes of 20 rounds instead of 6 of 15
    #[arg(long)]
    pub strict: bool,
    /// How many fresh processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sessions: Option<u32>,
    /// How many rounds in each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Time between two processes of a study, at least
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub pause: Option<Duration>,
    /// How long one sample is meant to be
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub sample: Option<Duration>,
    /// Draws the orders: the same seed draws the same ones
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep the ways on these processors
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pin: Vec<usize>,
    /// Run only these cells of the study
    #[arg(long, value_name = "CELL", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run only these sizes, written as the study writes them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<String>,
    /// Make scratch files in this folder: its file system is measured [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Keep results in this folder [default: thalweg/studies under the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Keep no result
    #[arg(long, conflicts_with = "save")]
    pub no_save: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    /// Write every sample into this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Read the studies, look for what they name, open every arm once, and say what is wrong; measure nothing
    #[arg(long)]
    pub check: bool,
    /// Take it as done although some arms cannot run here: else the exit status is 3
    #[arg(long)]
    pub allow_missing: bool,
    /// Write a study to begin with: NAME.toml with comments, NAME.c, and worker.h for programs
    #[arg(long, value_name = "NAME", conflicts_with_all = ["studies", "check", "rejudge"])]
    pub new: Option<PathBuf>,
    /// Judge the kept samples of these results, or of all in these folders, by their studies as they are
    /// now; run nothing
    #[arg(long, value_name = "RESULT", num_args = 1.., conflicts_with_all = ["studies", "check"])]
    pub rejudge: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  thalweg study                      the studies, and what is known of them here
  thalweg study 002 --quick          a look at one
  thalweg study all                  every one, in turns
  thalweg study ./mine.toml --csv samples.csv
  thalweg study --new mine           a study to begin with, which runs
  thalweg study --check ./mine.toml  what is wrong with it
  thalweg study --rejudge ~/.local/state/thalweg/studies

A claim has two verdicts: as published, with the article's own programs, sizes and state of the
memory, and more widely, with what is fair and usual today. Each is reproduced or contradicted only if
the whole interval says so, by more than the noise of the run; else it is undecided. Exit status 1: a
way delivered wrong bytes; 3: some could not run here, and the rest is shown.

Words that are new to you (arm, cell, round, session, regret): docs/reference/glossary.md.";
