//! Parses plain command lines, in which every word has only one meaning, without clap. Building clap's parser takes
//! longer than copying a small file.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use super::{CopyArgs, ReflinkWhen};

/// The exact spelling of an option, and its effect. Abbreviations, clusters and separate values need clap.
type PlainWord = (&'static str, fn(&mut CopyArgs));

const WORDS: [PlainWord; 21] = [
    ("-a", |args| args.kept.archive()),
    ("--archive", |args| args.kept.archive()),
    ("-p", |args| args.kept.usual()),
    ("-f", |args| args.force = true),
    ("--force", |args| args.force = true),
    ("-n", |args| args.no_clobber = true),
    ("--no-clobber", |args| args.no_clobber = true),
    ("--no-profile", |args| args.choice.no_profile = true),
    ("-q", |args| args.shown.quiet = true),
    ("--quiet", |args| args.shown.quiet = true),
    ("-r", |args| args.recursive = true),
    ("-R", |args| args.recursive = true),
    ("--recursive", |args| args.recursive = true),
    ("--reflink", |args| args.reflink = ReflinkWhen::Always),
    ("--reflink=always", |args| args.reflink = ReflinkWhen::Always),
    ("--reflink=auto", |args| args.reflink = ReflinkWhen::Auto),
    ("--reflink=never", |args| args.reflink = ReflinkWhen::Never),
    ("-v", |args| args.verbose = args.verbose.saturating_add(1)),
    ("--verbose", |args| args.verbose = args.verbose.saturating_add(1)),
    ("-T", |args| args.no_target_directory = true),
    ("--no-target-directory", |args| args.no_target_directory = true),
];

impl CopyArgs {
    /// Parses the words after the command's name. Returns `None` if an option is not in [`WORDS`], or if fewer than two
    /// words are file names.
    pub fn of_plain(words: &[OsString]) -> Option<Self> {
        let mut args = Self::default();
        for word in words {
            if !word.as_bytes().starts_with(b"-") {
                args.paths.push(word.into());
                continue;
            }
            let (_, apply) = WORDS.iter().find(|(known, _)| word == known)?;
            apply(&mut args);
        }
        (args.paths.len() > 1).then_some(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn parsed(words: &[OsString]) -> String {
        let parser = CopyArgs::augment_args(Command::new("copy")).no_binary_name(true);
        let mut matches = parser.get_matches_from(words);
        format!("{:?}", CopyArgs::from_arg_matches_mut(&mut matches).unwrap())
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn every_word_means_what_the_parser_says() {
        let two = |(one, _): &PlainWord| WORDS.map(|(other, _)| format!("{one} a {other} ./b/ c"));
        let lines = WORDS.iter().flat_map(two);
        for line in lines.chain(["a b", "a  b", "-T a b"].map(Into::into)) {
            let words = words(&line);
            let plain = CopyArgs::of_plain(&words).unwrap();
            assert_eq!(format!("{plain:?}"), parsed(&words), "{line}");
        }
    }

    #[test]
    fn what_needs_the_parser_is_left_to_it() {
        for line in ["a", "-q a", "-rq a b", "--re a b", "-t a b", "- b", "a -- b", "a b --help"] {
            assert!(CopyArgs::of_plain(&words(line)).is_none(), "{line}");
        }
    }
}
