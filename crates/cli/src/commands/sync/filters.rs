//! Flags that select the entries of a sync. The first pattern that matches decides, as in rsync.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_core::quantity::{parse_bytes, parse_duration};
use thalweg_tree::{ExcludePatterns, FileLimits, Filter};

use crate::{commands::copy::ListFile, exit::CommandFailure};

/// The result of all filter options.
#[derive(Debug, Default)]
pub struct SelectionArgs {
    rules: Vec<SelectionRule>,
    /// The name of filter files in the source.
    pub filter_file: Option<OsString>,
    /// Limits of size and age.
    pub limits: FileLimits,
}

/// A flag of the command line.
#[derive(Debug)]
enum SelectionRule {
    Exclude(OsString),
    Include(OsString),
    ExcludeFrom(PathBuf),
}

/// The flags as they are parsed.
#[derive(Args)]
#[command(next_help_heading = "Filters")]
struct SelectionFlags {
    /// Exclude entries that match this pattern, in the syntax of .gitignore
    ///
    /// Examples: '*.o', /build, dir/. The first --exclude or --include that matches decides. Excluded entries of DST are
    /// not deleted.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Do not exclude entries that match this pattern
    #[arg(long, value_name = "PATTERN")]
    include: Vec<OsString>,
    /// Read patterns from this file; `-` is standard input
    ///
    /// In the file, the last matching pattern decides, as in .gitignore.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Read patterns from files of this name in SRC, such as .gitignore
    #[arg(long, value_name = "NAME")]
    filter_file: Option<OsString>,
    /// Skip files larger than this, such as 10M; existing copies stay
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,
    /// Skip files smaller than this; existing copies stay
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_size: Option<u64>,
    /// Skip files that are older than this time or age, such as 2026-11-28T10:00:00Z or 12h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    newer_than: Option<i64>,
}

impl SelectionArgs {
    /// Returns the name of one of the flags that were given.
    pub fn given_flag(&self) -> Option<&'static str> {
        let FileLimits { largest, smallest, newer_than } = self.limits;
        let rule = self.rules.first().map(|rule| match rule {
            SelectionRule::Exclude(_) => "--exclude",
            SelectionRule::Include(_) => "--include",
            SelectionRule::ExcludeFrom(_) => "--exclude-from",
        });
        rule.or(self.filter_file.as_ref().map(|_| "--filter-file"))
            .or(largest.map(|_| "--max-size"))
            .or(smallest.map(|_| "--min-size"))
            .or(newer_than.map(|_| "--newer-than"))
    }

    /// Returns the filter of --exclude, --include and --exclude-from, if any was given.
    pub fn filter(&self) -> Result<Option<Arc<dyn Filter>>, CommandFailure> {
        let mut patterns = ExcludePatterns::default();
        // In a list of patterns, the last match decides.
        for rule in self.rules.iter().rev() {
            match rule {
                SelectionRule::Exclude(pattern) => patterns.add(pattern.as_bytes()),
                SelectionRule::Include(pattern) => {
                    patterns.add(&[b"!", pattern.as_bytes()].concat());
                }
                SelectionRule::ExcludeFrom(path) => {
                    patterns.add_file(ListFile::read(path, false)?.bytes());
                }
            }
        }
        Ok((!patterns.is_empty()).then(|| Arc::new(patterns) as Arc<dyn Filter>))
    }
}

impl FromArgMatches for SelectionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let flags = SelectionFlags::from_arg_matches(matches)?;
        let places = |id: &str| matches.indices_of(id).into_iter().flatten();
        let mut rules: Vec<(usize, SelectionRule)> = Vec::new();
        rules.extend(places("exclude").zip(flags.exclude.into_iter().map(SelectionRule::Exclude)));
        rules.extend(places("include").zip(flags.include.into_iter().map(SelectionRule::Include)));
        let files = flags.exclude_from.into_iter().map(SelectionRule::ExcludeFrom);
        rules.extend(places("exclude_from").zip(files));
        rules.sort_by_key(|(place, _)| *place);
        let limits = FileLimits {
            largest: flags.max_size,
            smallest: flags.min_size,
            newer_than: flags.newer_than,
        };
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Ok(Self { rules, filter_file: flags.filter_file, limits })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SelectionArgs {
    fn augment_args(command: Command) -> Command {
        SelectionFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SelectionFlags::augment_args_for_update(command)
    }
}

/// Parses a time, or the age of a file, into seconds since 1970.
fn parse_time(text: &str) -> Result<i64, String> {
    let why = "expected a time such as 2026-11-28T10:00:00Z, or an age such as 12h";
    let time = if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        time
    } else {
        let age: Duration = parse_duration(text).map_err(|_| why)?;
        SystemTime::now().checked_sub(age).unwrap_or(UNIX_EPOCH)
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        chosen: SelectionArgs,
    }

    #[test]
    fn the_first_matching_flag_decides() {
        let excluded = |words: &str, path: &str| {
            let words = ["x"].into_iter().chain(words.split_whitespace());
            let chosen = Words::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).chosen;
            chosen.filter().unwrap().is_some_and(|f| f.leaves_out(Path::new(path), false))
        };
        assert!(!excluded("--include *.c --exclude *", "a.c"));
        assert!(excluded("--include *.c --exclude *", "a.o"));
        assert!(excluded("--exclude * --include *.c", "a.c"));
        assert!(!excluded("", "a.c"));
    }

    #[test]
    fn times_are_dates_or_ages() {
        assert_eq!(parse_time("1970-01-02T00:00:00Z"), Ok(86_400));
        let age = parse_time("2h").unwrap();
        assert!(parse_time("1h").unwrap() - age >= 3599);
        assert!(parse_time("yesterday").is_err());
    }
}
