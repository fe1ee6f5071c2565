//! Arguments of `thalweg tune`.

use clap::{Args, ValueEnum};
use std::time::Duration;
use thalweg_core::quantity::parse_duration;
use thalweg_measure::tune_machine::{Ends, emit::Language};

use crate::args::{Preference, flag};

/// Measures the mechanisms of this machine and remembers the result in its profile
///
/// Every mechanism between several kinds of ends, from small to large, on the idle and on the busy
/// machine, in fresh processes spread over the time, in random order. Without --pair: files in the
/// current folder and in /dev/shm, file to pipe, file to socket, copies and fills in memory, and the
/// ways of `thalweg send` between two processes. Files are made in hidden folders and removed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// Fewer sizes and sessions
    #[arg(long)]
    pub quick: bool,
    /// Measure this pair only: SOURCE:SINK[@DIR], of memory, file, pipe, unix, tcp; may be given
    /// several times. file:file@FROM,TO lies in two folders; with memory:memory comes fill:memory,
    /// with file:tcp file:tcp-1m, whose reader asks for more at a time.
    /// process:process: from own and from lent memory (loan:) of one process into used, new and
    /// huge-page memory (:huge) of another
    #[arg(long, value_name = "PAIR")]
    pub pair: Vec<Ends>,
    /// What to save: decides what is shown, checked and written as constants. All of it is measured
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Preference::Wall)]
    pub objective: Preference,
    /// Time for all of it: 90s, 5m, 1h. Large sizes that do not fit are left out; three
    /// times the usual time adds 1 GiB in memory and between processes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Change nothing: measure other sizes, and say how much worse the planner chose than hindsight
    #[arg(long)]
    pub check: bool,
    /// Keep what is measured as of the idle machine, whatever else it does meanwhile. Else what other work
    /// met is kept as of the busy machine, or not at all
    #[arg(long)]
    pub assume_idle: bool,
    /// Change nothing: print what was measured as constants for another program
    #[arg(long, value_name = "LANGUAGE", value_enum)]
    #[arg(conflicts_with_all = ["check", "quick", "pair", "budget", "assume_idle"])]
    pub emit: Option<Emit>,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

/// What the constants are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// A module of constants
    Rust,
    /// A header
    C,
    /// A final class
    Java,
    /// Tables
    Toml,
}

impl Emit {
    /// Converts to the lab's type.
    pub fn language(self) -> Language {
        match self {
            Self::Rust => Language::Rust,
            Self::C => Language::C,
            Self::Java => Language::Java,
            Self::Toml => Language::Toml,
        }
    }
}

/// Parses `90`, `90s`, `5m` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time > Duration::from_secs(7 * 24 * 3600) => Err("longer than a week".into()),
        time if time.is_zero() => Err("no time at all".into()),
        time => Ok(time),
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg tune --quick                            two minutes; then see `thalweg plan`
  thalweg tune                                    ten minutes
  thalweg tune --pair file:file@/mnt/data --budget 3m
  thalweg tune --pair file:tcp@/srv --pair file:unix@/srv
  thalweg tune --pair process:process             for `thalweg send` and the channel's bulk transfers
  thalweg tune --check                            is the planner right on sizes it has not seen?
  thalweg tune --emit c > thalweg_measured.h      this machine's thresholds, for another program

Words that are new to you (arm, cell, round, session, regret): docs/reference/glossary.md.";

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
