//! The flags of `cp` for which a later flag overrides an earlier one: handling of symbolic links, and preserved
//! attributes.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, ValueEnum, parser::ValueSource};
use thalweg_tree::{Dereference, Preserve};

use crate::args::Abbreviated;

/// Effect of all flags about symbolic links and preserved attributes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PreserveArgs {
    /// `true` if `-a` was given.
    pub archive: bool,
    /// The symbolic links to follow; `None` if no flag specifies them.
    pub dereference: Option<Dereference>,
    /// The attributes that are preserved.
    pub preserve: Preserve,
    /// `true` if the last flag about modes was `--no-preserve=mode`.
    pub default_modes: bool,
}

/// The flags as they are parsed.
#[derive(Args)]
struct KeptFlags {
    /// Same as -dR --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Same as -P --preserve=links
    #[arg(short = 'd')]
    links: bool,
    /// Never follow symbolic links in the source
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// Always follow symbolic links in the source
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Follow symbolic links on the command line only
    #[arg(short = 'H')]
    dereference_args: bool,
    /// Preserve these attributes; without LIST, preserve mode, ownership and timestamps
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = Abbreviated::<Attribute>::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "mode,ownership,timestamps")]
    preserve: Vec<Attribute>,
    /// Do not preserve these attributes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Abbreviated::<Attribute>::new())]
    #[arg(require_equals = true, hide_possible_values = true)]
    no_preserve: Vec<Attribute>,
}

/// Attributes that can be preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attribute {
    /// Permissions and ACLs; an ACL that cannot be set is an error
    Mode,
    /// Owner and group
    Ownership,
    /// Access and modification time
    Timestamps,
    /// Hard links between copied files
    Links,
    /// SELinux context
    Context,
    /// Extended attributes; one that cannot be set is an error
    Xattr,
    /// All attributes; an extended attribute that cannot be set causes only a warning
    All,
}

/// A flag of the command line.
#[derive(Clone, Copy)]
enum PreserveFlag {
    Archive,
    Links,
    Follow(Dereference),
    Keep(Attribute),
    Drop(Attribute),
}

impl PreserveArgs {
    /// Applies `-a`.
    pub fn archive(&mut self) {
        self.apply(PreserveFlag::Archive);
    }

    /// Applies `-p`.
    pub fn usual(&mut self) {
        for attribute in [Attribute::Mode, Attribute::Ownership, Attribute::Timestamps] {
            self.apply(PreserveFlag::Keep(attribute));
        }
    }

    fn apply(&mut self, flag: PreserveFlag) {
        let keep = &mut self.preserve;
        match flag {
            PreserveFlag::Archive => {
                self.archive = true;
                self.dereference = Some(Dereference::Never);
                (*keep, self.default_modes) = (Preserve::all(), false);
            }
            PreserveFlag::Links => {
                self.dereference = Some(Dereference::Never);
                keep.links = true;
            }
            PreserveFlag::Follow(dereference) => self.dereference = Some(dereference),
            PreserveFlag::Keep(attribute) => self.set(attribute, true),
            PreserveFlag::Drop(attribute) => self.set(attribute, false),
        }
    }

    fn set(&mut self, attribute: Attribute, on: bool) {
        let keep = &mut self.preserve;
        match attribute {
            Attribute::Mode => {
                (keep.mode, keep.acl) = (on, on);
                self.default_modes = !on;
            }
            Attribute::Ownership => keep.owner = on,
            Attribute::Timestamps => keep.times = on,
            Attribute::Links => keep.links = on,
            Attribute::Context => keep.context = on,
            Attribute::Xattr => (keep.xattrs, keep.strict) = (on, on),
            Attribute::All => {
                let strict = keep.strict && on;
                *keep = if on { Preserve::all() } else { Preserve::default() };
                (keep.strict, self.default_modes) = (strict, !on);
            }
        }
    }
}

impl FromArgMatches for PreserveArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let mut flags_given = Vec::new();
        for (id, what) in [
            ("archive", PreserveFlag::Archive),
            ("links", PreserveFlag::Links),
            ("no_dereference", PreserveFlag::Follow(Dereference::Never)),
            ("dereference", PreserveFlag::Follow(Dereference::Always)),
            ("dereference_args", PreserveFlag::Follow(Dereference::CommandLine)),
        ] {
            if given(id) {
                flags_given
                    .extend(matches.indices_of(id).into_iter().flatten().map(|at| (at, what)));
            }
        }
        let flags = KeptFlags::from_arg_matches(matches)?;
        let keep = flags.preserve.into_iter().map(PreserveFlag::Keep);
        let drop = flags.no_preserve.into_iter().map(PreserveFlag::Drop);
        flags_given.extend(matches.indices_of("preserve").into_iter().flatten().zip(keep));
        flags_given.extend(matches.indices_of("no_preserve").into_iter().flatten().zip(drop));
        flags_given.sort_by_key(|(at, _)| *at);
        let mut kept = Self::default();
        for (_, what) in flags_given {
            kept.apply(what);
        }
        Ok(kept)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for PreserveArgs {
    fn augment_args(command: Command) -> Command {
        KeptFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        KeptFlags::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Words {
        #[command(flatten)]
        kept: PreserveArgs,
        #[arg(short)]
        recursive: bool,
    }

    fn kept(words: &str) -> PreserveArgs {
        let words = Words::try_parse_from(["x"].into_iter().chain(words.split_whitespace()));
        let words = words.unwrap_or_else(|error| panic!("{error}"));
        assert!(words.recursive || !words.kept.archive || words.kept.preserve.links);
        words.kept
    }

    #[test]
    fn the_last_word_about_links_wins() {
        for (words, expected) in [
            ("-a -L", Dereference::Always),
            ("-L -a", Dereference::Never),
            ("-P -H -L -P", Dereference::Never),
            ("-L -d", Dereference::Never),
            ("-d -H", Dereference::CommandLine),
        ] {
            assert_eq!(kept(words).dereference, Some(expected), "{words}");
        }
    }

    #[test]
    fn attributes_are_added_and_taken_back_in_order() {
        let all = kept("-a").preserve;
        assert_eq!(all, Preserve::all());
        assert_eq!(kept("-pr").preserve, Preserve::usual());
        let bare = kept("-a --no-preserve=mode,own");
        assert!(bare.default_modes && !bare.preserve.mode && !bare.preserve.owner);
        assert!(bare.preserve.links && bare.preserve.times);
        let again = kept("--no-preserve=mode -p");
        assert!(again.preserve.mode && !again.default_modes);
        assert!(kept("--preserve=xattr").preserve.strict && !all.strict);
    }
}
