//! Flags that select the entries of a sync. The first pattern that matches decides, as in rsync.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_core::{
    quantity::{parse_bytes, parse_duration},
    shown,
};
use thalweg_serve::{
    manifest::{LONGEST_QUERY, ListRequest},
    remote::{decode, encode},
};
use thalweg_tree::{ExcludePatterns, FileLimits, Filter, sync::is_filter_name};

use super::ListFile;
use crate::exit::{CommandFailure, Exit};

/// The result of all filter options.
#[derive(Clone, Debug, Default)]
pub struct SelectionArgs {
    rules: Vec<SelectionRule>,
    /// The name of filter files in the source.
    pub filter_file: Option<OsString>,
    /// Limits of size and age.
    pub limits: FileLimits,
}

/// An `--exclude`, `--include` or `--exclude-from` of the command line.
#[derive(Clone, Debug)]
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
    /// Skip files larger than this, such as 10M, and keep existing copies
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<u64>,
    /// Skip files smaller than this, and keep existing copies
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_size: Option<u64>,
    /// Skip files that are older than this time or age, such as 2026-11-28T10:00:00Z, @1700000000 or 12h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    newer_than: Option<i64>,
}

impl SelectionArgs {
    /// Returns `true` if no flag was given.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.filter_file.is_none() && self.limits.is_empty()
    }

    /// Returns the patterns of --exclude, --include and --exclude-from in reverse order: on the command line, the first
    /// matching option decides; in the returned list, the last matching pattern decides, as in .gitignore.
    pub fn patterns(&self) -> Result<Vec<OsString>, CommandFailure> {
        let mut patterns = Vec::new();
        for rule in self.rules.iter().rev() {
            match rule {
                SelectionRule::Exclude(pattern) => patterns.push(pattern.clone()),
                SelectionRule::Include(pattern) => {
                    patterns.push([OsStr::new("!"), pattern].join(OsStr::new("")));
                }
                SelectionRule::ExcludeFrom(path) => {
                    let list = ListFile::read(path, false)?;
                    let lines = ExcludePatterns::in_file(list.bytes());
                    patterns.extend(lines.map(|line| OsStr::from_bytes(line).to_owned()));
                }
            }
        }
        Ok(patterns)
    }

    /// Returns equivalent flags for another machine. They contain the patterns themselves, because the other machine
    /// does not have the files of --exclude-from.
    pub fn resolved(&self) -> Result<Self, CommandFailure> {
        let (filter_file, limits) = (self.filter_file.clone(), self.limits);
        if let Some(name) = filter_file.as_ref().filter(|name| !is_filter_name(name)) {
            let why = format!(
                "'{}': the filter file must be a file name without a directory",
                shown(name)
            );
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        Ok(Self { filter_file, limits, ..Self::of_patterns(self.patterns()?)? })
    }

    /// Returns flags with these patterns for another machine. The last matching pattern decides.
    pub fn of_patterns(patterns: Vec<OsString>) -> Result<Self, CommandFailure> {
        let rules = patterns.into_iter().rev().map(SelectionRule::Exclude).collect();
        let resolved = Self { rules, ..Self::default() };
        let length = resolved.list(false)?.query().len();
        if length > LONGEST_QUERY {
            let why = format!(
                "the patterns are too long for another machine: {length} bytes, at most {LONGEST_QUERY}"
            );
            return Err(CommandFailure::new(Exit::Usage, why)
                .hint("write the patterns into a file in SRC, and name it with --filter-file"));
        }
        Ok(resolved)
    }

    /// Returns these flags as words without characters that a shell interprets.
    pub fn words(&self) -> Result<Vec<String>, CommandFailure> {
        let ListRequest { exclude, filter_file, .. } = self.list(false)?;
        let FileLimits { largest, smallest, newer_than } = self.limits;
        let exclude = exclude.iter().rev().map(|pattern| ("exclude", encode(pattern)));
        let filter_file = filter_file.iter().map(|name| ("filter-file", encode(name)));
        let limits = [("max-size", largest), ("min-size", smallest)];
        let limits = limits.into_iter().filter_map(|(name, size)| Some((name, size?.to_string())));
        let newer_than = newer_than.iter().map(|time| ("newer-than", format!("@{time}")));
        let all = exclude.chain(filter_file).chain(limits).chain(newer_than);
        Ok(all.map(|(name, value)| format!("--{name}={value}")).collect())
    }

    /// Returns a request for a list without the excluded entries. `is_encoded`: `true` if another thalweg process
    /// encoded the flags with [`words`](Self::words).
    pub fn list(&self, is_encoded: bool) -> Result<ListRequest, CommandFailure> {
        let plain = |word: OsString| {
            if is_encoded { decode(&word, None).into_os_string() } else { word }
        };
        Ok(ListRequest {
            exclude: self.patterns()?.into_iter().map(plain).collect(),
            filter_file: self.filter_file.clone().map(plain),
            ..ListRequest::default()
        })
    }

    /// Returns the filter of --exclude, --include and --exclude-from, if any was given.
    pub fn filter(&self) -> Result<Option<Arc<dyn Filter>>, CommandFailure> {
        let mut patterns = ExcludePatterns::default();
        self.patterns()?.iter().for_each(|pattern| patterns.add(pattern.as_bytes()));
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
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| why.to_owned());
    }
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
    fn another_machine_gets_the_meaning_of_the_flags_in_words_that_no_shell_changes() {
        let scratch = tempfile::tempdir().unwrap();
        let list = scratch.path().join("list");
        std::fs::write(&list, "# comment\n*.tmp \n!b.tmp\n").unwrap();
        let line = format!(
            "--include a*.o --exclude *.o --exclude-from {} --filter-file .ignore --max-size 5K --newer-than @7",
            list.display()
        );
        let parse = |words: &[String]| {
            let words = ["x".to_owned()].into_iter().chain(words.iter().cloned());
            Words::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).chosen
        };
        let given = parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let words = given.resolved().unwrap().words().unwrap();
        let is_quiet = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/%=@".contains(&byte);
        assert!(words.iter().flat_map(|word| word.bytes()).all(is_quiet), "{words:?}");
        let sent = parse(&words);
        assert_eq!(sent.list(true).unwrap(), given.list(false).unwrap());
        assert_eq!(sent.limits, given.limits);
        assert_eq!(sent.list(true).unwrap().exclude, ["*.tmp", "!b.tmp", "*.o", "!a*.o"]);
        let long: Vec<_> = (0..9000).map(|n| format!("--exclude={n}*")).collect();
        assert!(parse(&long).resolved().unwrap_err().message.contains("too long"));
    }

    #[test]
    fn times_are_dates_or_ages() {
        assert_eq!(parse_time("1970-01-02T00:00:00Z"), Ok(86_400));
        assert_eq!(parse_time("@-86400"), Ok(-86_400));
        assert!(parse_time("@1h").is_err());
        let age = parse_time("2h").unwrap();
        assert!(parse_time("1h").unwrap() - age >= 3599);
        assert!(parse_time("yesterday").is_err());
    }
}
