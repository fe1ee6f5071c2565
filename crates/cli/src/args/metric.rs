//! Metrics by which programs are compared, and parsing of their commands: for `trial` and `compare`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use thalweg_measure::arms::command::{self, Metric};

use crate::exit::{Exit, Failure};

/// A metric with its direction.
#[derive(Args, Debug)]
pub struct MetricArgs {
    /// What to judge by: wall, cpu, maxrss, or regex:PATTERN for a number that the program prints
    #[arg(short, long, value_name = "WHAT", default_value = "wall", value_parser = Metric::parse)]
    metric: Metric,
    /// Which numbers are good; higher without it for one that is printed, lower for the others
    #[arg(long, value_name = "WHICH", value_enum)]
    better: Option<Better>,
}

/// Which numbers are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Better {
    /// Small ones
    Lower,
    /// Large ones
    Higher,
}

impl MetricArgs {
    /// Returns the requested metric.
    pub fn get(&self) -> Metric {
        let mut metric = self.metric.clone();
        match self.better {
            Some(Better::Lower) => metric.better = command::Better::Lower,
            Some(Better::Higher) => metric.better = command::Better::Higher,
            None => {}
        }
        metric
    }
}

/// Splits a command into words as a shell does, without expansions.
pub fn words(option: &str, text: &str) -> Result<Vec<OsString>, Failure> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(Into::into).collect()),
        Some(_) => Err(Failure::new(Exit::Usage, format!("{option}: an empty command"))),
        None => Err(Failure::new(Exit::Usage, format!("{option} '{text}': an open quote"))),
    }
}
