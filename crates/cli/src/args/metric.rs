//! Options that `trial` and `compare` share: the metric by which programs are compared, and the commands to run.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use thalweg_measure::arms::command::{self, RunMetric};

use crate::exit::{CommandFailure, Exit};

/// A metric with its direction.
#[derive(Args, Debug)]
pub struct MetricArgs {
    /// Compare by wall, cpu, maxrss, or regex:PATTERN for a number that the program prints
    #[arg(short, long, value_name = "WHAT", default_value = "wall", value_parser = RunMetric::parse)]
    metric: RunMetric,
    /// Control which numbers are better [default: higher for a printed number, lower otherwise]
    #[arg(long, value_name = "WHICH", value_enum)]
    better: Option<BetterArg>,
}

/// The better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BetterArg {
    /// Lower numbers are better
    Lower,
    /// Higher numbers are better
    Higher,
}

impl MetricArgs {
    /// Returns the requested metric.
    pub fn get(&self) -> RunMetric {
        let mut metric = self.metric.clone();
        match self.better {
            Some(BetterArg::Lower) => metric.better = command::BetterDirection::Lower,
            Some(BetterArg::Higher) => metric.better = command::BetterDirection::Higher,
            None => {}
        }
        metric
    }
}

/// Splits a command into words as a shell does, without expansions.
pub fn words(option: &str, text: &str) -> Result<Vec<OsString>, CommandFailure> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(Into::into).collect()),
        Some(_) => Err(CommandFailure::new(Exit::Usage, format!("{option}: the command is empty"))),
        None => Err(CommandFailure::new(
            Exit::Usage,
            format!("{option} '{text}': missing closing quote"),
        )),
    }
}
