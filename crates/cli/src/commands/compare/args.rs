//! Arguments of `thalweg compare`.

use clap::Args;
use std::{ffi::OsString, path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;

use crate::args::{MetricArgs, flag};

/// Compares any commands: which one is faster, by how much, or that no difference shows
///
/// The commands take turns in random order, one of them twice in each round, so that a drift of the
/// machine is not taken for a difference between them. Each is compared with the first. Their standard
/// input is empty, and their output is not shown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The commands with `--` between them; or each as one word in quotes, split as a shell would
    #[arg(last = true, required = true, value_name = "CMD")]
    pub commands: Vec<OsString>,

    #[command(flatten)]
    pub metric: MetricArgs,
    /// Rounds; each runs every command once, and one of them twice [default: at least 20, and more
    /// until --min-time is reached]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "min_time")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub runs: Option<u32>,
    /// How long the runs of each command take in all, --prepare and --check included, at least
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub min_time: Duration,
    /// Runs of each command before any counts
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub warmup: u32,
    /// Run this before each run, outside the timed part
    #[arg(short, long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Run this after each run, outside the timed part: it must succeed, as `cmp A B` does
    #[arg(short, long, value_name = "CMD")]
    pub check: Option<String>,
    /// Compare what the commands print, byte by byte
    #[arg(long)]
    pub same_output: bool,
    /// Run everything once for each of these values, put in place of {NAME}; may be given several times
    #[arg(short, long, value_name = "NAME=A,B,...", value_parser = Scan::parse)]
    pub scan: Vec<Scan>,
    /// What a command is called in the answer; given once for each, in their order
    #[arg(short = 'N', long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Give each command to a shell, which is part of what is measured
    #[arg(long, value_name = "SHELL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "sh")]
    pub shell: Option<String>,
    /// Take a status other than 0 for no failure
    #[arg(short, long)]
    pub ignore_failure: bool,
    /// End with 1 if a command is shown to be slower than the first; with a share, if the whole interval
    /// lies beyond it
    #[arg(long, value_name = "slower[=5%]", value_parser = FailIf::parse)]
    pub fail_if: Option<FailIf>,
    /// How long one run may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Repeats the order of the runs of an earlier comparison
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
    /// Print a table for a pull request
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Also write csv (every run), json or markdown into a file, or print it without one
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
        let (name, values) = text.split_once('=').ok_or("a scan is written NAME=A,B,...")?;
        if name.is_empty() || name.contains(['{', '}']) {
            return Err(format!("'{name}' is no name for a scan"));
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
        let wrong = || format!("'{text}' is neither slower nor slower=5%");
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
pub enum Form {
    Text,
    Json,
    Markdown,
    Csv,
}

/// An output format, and the file to write.
#[derive(Clone, Debug)]
pub struct Export {
    pub form: Form,
    pub file: Option<PathBuf>,
}

impl Export {
    fn parse(text: &str) -> Result<Self, String> {
        let (form, file) = match text.split_once('=') {
            Some((form, file)) => (form, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let form = match form {
            "csv" => Form::Csv,
            "json" => Form::Json,
            "markdown" => Form::Markdown,
            _ => return Err(format!("'{form}' is none of csv, json and markdown")),
        };
        if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
            return Err("the name of the file is empty".to_owned());
        }
        Ok(Self { form, file })
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg compare -- cp big.iso copy -- thalweg copy big.iso copy
  thalweg compare --prepare 'rm -rf copy' -- 'cp -r tree copy' 'thalweg copy -r tree copy'
  thalweg compare --scan n=1,2,4,8 -- 'xz -kfT{n} dump.sql'
  thalweg compare --metric 'regex:([0-9.]+) MB/s' -- ./bench old -- ./bench new
  thalweg compare --shell --same-output --fail-if slower=5% -- './old < in' './new < in'

A difference is shown if the whole 95 % interval of the ratio says so, by more than two runs of one
command differ. Else the answer is `no difference shown`, which does not say that they are equal.

Exit status: 0 done; 1 --fail-if holds; 2 usage; 3 a command failed, printed something else, or gave no
number, and nothing is said of it.

Words that are new to you (arm, round, noise): docs/reference/glossary.md.";
