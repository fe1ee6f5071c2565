//! Arguments of `thalweg tune`.

use clap::{Args, ValueEnum};
use std::time::Duration;
use thalweg_core::quantity::parse_duration;
use thalweg_measure::tune_machine::{EndPair, emit::Language};

use crate::args::{Preference, flag};

/// Measure the methods on this machine and save the result in its profile
///
/// Measures all methods with small and large sizes, with idle and with busy cores. Each session is a new process that
/// runs the methods in random order. Without --pair, it measures copies of files in the current directory and in
/// /dev/shm, copies from files to pipes and sockets, and copies and fills in memory. It also measures the methods of
/// `thalweg send`. Test files are removed afterwards.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// Measure fewer sizes in fewer sessions
    #[arg(long)]
    pub quick: bool,
    /// Measure only this pair: SOURCE:SINK[@DIR]; may be repeated
    ///
    /// SOURCE and SINK are memory, file, pipe, unix or tcp. file:file@FROM,TO uses two directories. memory:memory
    /// also measures filling memory, and file:tcp also a reader that requests 1 MiB at a time. process:process measures
    /// transfers between two processes, with every kind of memory.
    #[arg(long, value_name = "PAIR")]
    pub pair: Vec<EndPair>,
    /// Rate the methods in the output by this resource; all resources are measured
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Preference::Wall)]
    pub objective: Preference,
    /// Limit the total time, such as 90s or 1h; skips large sizes that do not fit [default: 10m, or 2m with --quick]
    ///
    /// If TIME is at least three times the default, transfers of 1 GiB in memory and between processes are also
    /// measured.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Check the choices of the planner with other sizes; change nothing
    #[arg(long)]
    pub check: bool,
    /// Treat the machine as idle, even if other processes disturb the measurement
    ///
    /// Otherwise, disturbed sessions count as those of a busy machine, or are discarded.
    #[arg(long)]
    pub assume_idle: bool,
    /// Print the saved results as constants for another program; change nothing
    #[arg(long, value_name = "LANGUAGE", value_enum)]
    #[arg(conflicts_with_all = ["check", "quick", "pair", "budget", "assume_idle"])]
    pub emit: Option<Emit>,
    /// Also print all measurements
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

/// Output format of `--emit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// C header
    C,
    /// JSON, for a generator of another language
    Json,
}

impl Emit {
    /// Converts to the lab's type.
    pub fn language(self) -> Language {
        match self {
            Self::C => Language::C,
            Self::Json => Language::Json,
        }
    }
}

/// Parses `90`, `90s`, `5m` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time > Duration::from_secs(7 * 24 * 3600) => Err("more than a week".into()),
        time if time.is_zero() => Err("must be more than 0".into()),
        time => Ok(time),
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg tune --quick                 two minutes
  thalweg tune                         ten minutes
  thalweg tune --pair file:file@/mnt/data --budget 3m
  thalweg tune --pair file:tcp@/srv --pair file:unix@/srv
  thalweg tune --pair process:process  for `thalweg send` and channels
  thalweg tune --check                 check the planner with other sizes
  thalweg tune --emit c > thalweg_measured.h

Terms (session, regret): docs/reference/glossary.md.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2m 5s"), Ok(Duration::from_secs(125)));
        assert!(duration("soon").unwrap_err().contains("examples"));
        assert!(duration("0").is_err() && duration("9999h").is_err());
    }
}
