//! Arguments of `thalweg compare`.

use clap::Args;
use std::{ffi::OsString, path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use crate::args::{MetricArgs, flag};

/// Compare the speed of commands
///
/// Each command is compared with the first one. Each round runs all commands in random order, so that a drift of the
/// machine does not look like a difference. Each round runs one command twice, to measure the noise. The standard input
/// of the commands is empty, and their output is not shown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Commands, separated by `--`, or each quoted as one word
    #[arg(last = true, required = true, value_name = "CMD")]
    pub commands: Vec<OsString>,

    #[command(flatten)]
    pub metric: MetricArgs,
    /// Number of rounds [default: at least 20, and enough for --min-time]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "min_time")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub runs: Option<u32>,
    /// Run each command for at least this long in total, including --prepare and --check
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub min_time: Duration,
    /// Number of warm-up runs per command
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub warmup: u32,
    /// Run this command before each run, without timing it
    #[arg(short, long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Run this command after each run, without timing it; it must succeed
    #[arg(short, long, value_name = "CMD")]
    pub check: Option<String>,
    /// Also compare the output of the commands byte by byte
    #[arg(long)]
    pub same_output: bool,
    /// Repeat the comparison with each value in place of {NAME}; may be repeated
    #[arg(short, long, value_name = "NAME=A,B,...", value_parser = Scan::parse)]
    pub scan: Vec<Scan>,
    /// Name of a command in the output; give it once per command, in order
    #[arg(short = 'N', long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Run each command in a shell; the time of the shell is included
    #[arg(long, value_name = "SHELL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "sh")]
    pub shell: Option<String>,
    /// Accept commands that exit with another status than 0
    #[arg(short, long)]
    pub ignore_failure: bool,
    /// Exit with 1 if a command is slower than the first one, or slower by more than this percentage
    #[arg(long, value_name = "slower[=5%]", value_parser = FailIf::parse)]
    pub fail_if: Option<FailIf>,
    /// Limit the time of one run
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Seed of the random order, to repeat an earlier comparison
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    /// Print a Markdown table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Also write the result as csv (every run), json or markdown, to FILE or to standard output
    #[arg(long, value_name = "FORMAT[=FILE]", value_parser = Export::parse)]
    pub export: Vec<Export>,
}

/// A placeholder and its values.
#[derive(Clone, Debug)]
pub struct Scan {
    pub name: String,
    pub values: Vec<String>,
}

impl Scan {
    /// Parses `name=1,2,4`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("expected NAME=A,B,...")?;
        if name.is_empty() || name.contains(['{', '}']) {
            return Err(format!("invalid name '{name}'"));
        }
        let values = values.split(',').map(str::to_owned).collect();
        Ok(Self { name: name.to_owned(), values })
    }

    /// Returns the placeholder as written in a command.
    pub fn pattern(&self) -> String {
        format!("{{{}}}", self.name)
    }
}

/// The condition under which a comparison fails.
#[derive(Clone, Copy, Debug)]
pub struct FailIf {
    /// The smallest slowdown that counts, as a fraction.
    pub by: f64,
}

impl FailIf {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid condition '{text}'; expected slower or slower=5%");
        if text == "slower" {
            return Ok(Self { by: 0.0 });
        }
        let share = text.strip_prefix("slower=").ok_or_else(wrong)?;
        let percent = share.strip_suffix('%').unwrap_or(share).trim();
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        if !(0.0..=1e6).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self { by: percent / 100.0 })
    }
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    Text,
    Json,
    Markdown,
    Csv,
}

/// An output format, and the file to write.
#[derive(Clone, Debug)]
pub struct Export {
    pub form: OutputForm,
    pub file: Option<PathBuf>,
}

impl Export {
    fn parse(text: &str) -> Result<Self, String> {
        let (form, file) = match text.split_once('=') {
            Some((form, file)) => (form, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let form = match form {
            "csv" => OutputForm::Csv,
            "json" => OutputForm::Json,
            "markdown" => OutputForm::Markdown,
            _ => return Err(format!("unknown format '{form}'; expected csv, json or markdown")),
        };
        if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
            return Err("empty file name".to_owned());
        }
        Ok(Self { form, file })
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg compare -- cp big.iso copy -- thalweg copy big.iso copy
  thalweg compare --prepare 'rm -rf b' -- 'cp -r a b' 'thalweg copy -r a b'
  thalweg compare --scan jobs=1,2,4,8 -- 'xz -kfT{jobs} dump.sql'
  thalweg compare --metric 'regex:([0-9.]+) MB/s' -- ./bench old -- ./bench new
  thalweg compare --shell --fail-if slower=5% -- './old < in' './new < in'

A difference counts if it exceeds the noise, and the whole 95 % interval of the ratio \
is on one side of 1. `no difference shown` does not mean that the commands are equally fast.

Exit status:
  0  success
  1  the condition of --fail-if is true
  2  wrong usage
  3  a command failed, or its output differed or had no number

Terms (round, noise): docs/reference/glossary.md.";
