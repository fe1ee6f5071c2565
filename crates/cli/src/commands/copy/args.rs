//! Arguments of `thalweg copy`.

use clap::{
    Args, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
};
use std::{ffi::OsString, path::PathBuf};
use thalweg_core::quantity::parse_rate;
use thalweg_tree::Hash;

use crate::args::{Abbreviated, Choice, FsyncArgs, HashName, ProgressArgs, flag};

mod chosen;
mod fleet;
mod kept;
mod plain;
pub use chosen::Chosen;
pub use fleet::Fleet;
use kept::Kept;

const SAFETY: &str = "Safety";
const SPEED: &str = "Speed";

/// Copies files and trees
///
/// Takes cp's flags, in the same order of precedence, and their abbreviations. A copy appears under
/// its final name only when it is whole. `-` is standard input or standard output.
///
/// A file that is replaced becomes another inode: other hard links to it keep the old contents, and
/// another user's file becomes ours where its owner cannot be kept. Where its folder takes no new
/// file it is written into, as cp does. --inplace writes into it always. docs/guides/copy.md has more.
///
/// Standard output carries what was asked for and nothing else: the lines of -v and --dry-run, the
/// screen of --tune, the object of --json. The summary goes to standard error: where that is a
/// terminal, and with --verify, --resume or --progress=always. -q leaves it out.
#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES, args_override_self = true, infer_long_args = true)]
pub struct CopyArgs {
    /// What to copy, then where to
    // An empty name is accepted here, because a missing file is a separate error, reported later.
    #[arg(required_unless_present = "shard", num_args = 1.., value_name = "SRC... DST")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub paths: Vec<PathBuf>,

    /// Copy folders with all they hold
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub kept: Kept,
    /// Copy attributes, and no bytes
    #[arg(long)]
    pub attributes_only: bool,
    /// Read special files met in folders, instead of making new ones
    #[arg(long)]
    pub copy_contents: bool,
    /// Make hard links to the files instead of copies
    #[arg(short, long)]
    pub link: bool,
    /// Make symbolic links to the files instead of copies
    #[arg(short, long)]
    pub symbolic_link: bool,
    /// Replace what is older only (-u), all, nothing, or fail where something would be replaced
    #[arg(short, long, value_name = "WHEN", value_parser = Abbreviated::<Update>::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "older")]
    pub update: Option<Update>,
    /// Never overwrite, whatever -f and -i say
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Ask before overwriting
    #[arg(short, long)]
    pub interactive: bool,
    /// Remove a destination that cannot be opened, and try again
    #[arg(short, long)]
    pub force: bool,
    /// Remove each existing file first: follow no link there, keep nothing of it
    #[arg(long)]
    pub remove_destination: bool,
    /// Keep what would be overwritten under another name
    #[arg(long, value_name = "CONTROL", value_parser = Abbreviated::<Backup>::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub backup: Option<Backup>,
    /// Like --backup, without a word after it
    #[arg(short)]
    pub backups: bool,
    /// What the name of a simple backup ends with; implies --backup
    #[arg(short = 'S', long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub suffix: Option<OsString>,
    /// DST is a file, never a folder to copy into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
    /// Copy every SRC into this folder
    #[arg(short, long, value_name = "DIR", allow_hyphen_values = true)]
    pub target_directory: Option<PathBuf>,
    /// Keep the folders of each SRC's path, below DST
    #[arg(long)]
    pub parents: bool,
    /// Remove slashes at the end of each SRC
    #[arg(long)]
    pub strip_trailing_slashes: bool,
    /// A link to a folder in the destination may stand for a folder
    #[arg(long)]
    pub keep_directory_symlink: bool,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Holes in files
    #[arg(long, value_name = "WHEN", env = "THALWEG_SPARSE", hide_env = true)]
    #[arg(value_parser = Abbreviated::<Sparse>::new(), default_value = "auto")]
    pub sparse: Sparse,
    /// Clones that share blocks until one is written
    #[arg(long, value_name = "WHEN", env = "THALWEG_REFLINK", hide_env = true)]
    #[arg(value_parser = Abbreviated::<Reflink>::new(), default_value = "auto")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub reflink: Reflink,
    /// Set the SELinux label of new files
    #[arg(short = 'Z', long, value_name = "CTX")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub context: Option<OsString>,
    /// Name each copy: 'SRC' -> 'DST'
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    /// Like -v, and print the method, and the methods that failed, on standard error
    #[arg(long)]
    pub debug: bool,

    #[command(flatten)]
    pub chosen: Chosen,

    /// Go on where an interrupted copy of the same sources stopped
    #[arg(long, help_heading = SAFETY)]
    pub resume: bool,
    /// Read everything again and compare by blake3 or xxh3, what is left as it was too; with --resume what
    /// differs is copied again, else it is named. A fresh copy comes from the page cache: with `device`
    /// (also `xxh3,device`) it is synced and read back from the disk
    #[arg(long, value_name = "HASH|device", env = "THALWEG_VERIFY", hide_env = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "blake3")]
    #[arg(value_parser = Verify::parse)]
    #[arg(help_heading = SAFETY)]
    pub verify: Option<Verify>,
    /// Write the hashes of the files that are there now, read from the copy, to this file, as
    /// `thalweg manifest` does; if anything failed it is not written
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", help_heading = SAFETY)]
    pub manifest: Option<PathBuf>,
    /// The hash of each file in the manifest
    #[arg(long, value_name = "HASH", value_enum, requires = "manifest")]
    #[arg(default_value_t = HashName::Blake3, help_heading = SAFETY)]
    pub manifest_hash: HashName,
    #[command(flatten, next_help_heading = SAFETY)]
    pub durable: FsyncArgs,
    /// Write into the destination itself instead of a temporary file beside it; no backups
    #[arg(long, help_heading = SAFETY)]
    pub inplace: bool,
    /// Say what would be copied, and copy nothing
    #[arg(long, help_heading = SAFETY)]
    pub dry_run: bool,

    /// How many files to copy at a time
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true, help_heading = SPEED)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Move no more than this many bytes a second
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate, help_heading = SPEED)]
    pub limit: Option<u64>,
    /// Measure first, and move by the winner: at most three seconds, fewer for a shorter copy
    #[arg(long, env = "THALWEG_TUNE", hide_env = true, value_parser = flag())]
    #[arg(help_heading = SPEED)]
    pub tune: bool,

    #[command(flatten)]
    pub fleet: Fleet,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

impl CopyArgs {
    /// Returns `true` if each copied file should be named.
    pub fn is_verbose(&self) -> bool {
        self.verbose || self.debug
    }
}

/// What may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Update {
    /// Everything
    All,
    /// What is older than its source
    Older,
    /// Nothing
    None,
    /// Nothing, and what would be is a failure
    NoneFail,
}

/// Names for what would be overwritten, as in cp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backup {
    /// No backups
    #[value(alias = "off")]
    None,
    /// name.~1~, name.~2~ ...
    #[value(alias = "t")]
    Numbered,
    /// Numbered if there are numbered ones already, else simple
    #[value(alias = "nil")]
    Existing,
    /// name~
    #[value(alias = "never")]
    Simple,
    /// What VERSION_CONTROL says, or existing
    #[value(name = "", hide = true)]
    Unsaid,
}

/// Holes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sparse {
    /// Keep the source's
    #[default]
    Auto,
    /// Make one of every run of zeros
    Always,
    /// None
    Never,
}

/// Clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Reflink {
    /// Where it works
    #[default]
    Auto,
    /// Or fail
    Always,
    /// Copy the bytes
    Never,
}

/// Options of the verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The hash function.
    pub hash: Hash,
    /// `true` if copies are read from the device, not from the page cache.
    pub device: bool,
}

impl Verify {
    /// Parses `blake3`, `xxh3` and `device`, or a hash and `device` with a comma between them.
    fn parse(text: &str) -> Result<Self, String> {
        let (mut hash, mut device) = (None, false);
        for word in text.split(',') {
            match word {
                "blake3" if hash.is_none() => hash = Some(Hash::Blake3),
                "xxh3" if hash.is_none() => hash = Some(Hash::Xxh3),
                "device" if !device => device = true,
                _ => return Err("blake3 or xxh3, device, or both with a comma between".to_owned()),
            }
        }
        Ok(Self { hash: hash.unwrap_or(Hash::Blake3), device })
    }

    /// Returns the name of the hash function.
    pub fn hash_name(self) -> &'static str {
        if self.hash == Hash::Xxh3 { "xxh3" } else { "blake3" }
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy --tune big.iso /mnt/usb/       measure, move by the winner, say what won
  thalweg copy -a --jobs 4 photos/ /backup/   a tree with everything that can be kept
  thalweg copy --resume -a photos/ /backup/   after an interruption
  thalweg copy -a --exclude '*.o' --exclude /build src/ /backup/
  thalweg copy --verify --fsync db.dump /mnt/nas/
  thalweg copy - /tmp/log < /dev/stdin        standard input into a file, whole or not at all
  mpirun -n 8 thalweg copy -a --shard auto /lustre/a /gpfs/b

Exit status: 0 done; 1 failed, or data differ; 2 usage; 3 incomplete, and the same command with --resume
goes on, or the source changed while it was copied; 4 not supported here.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::find;

    #[test]
    fn a_beginning_counts_where_it_means_one_thing() {
        assert_eq!(find("num"), Some(Backup::Numbered));
        assert_eq!(find("t"), Some(Backup::Numbered));
        // none, numbered, never, nil
        assert_eq!(find::<Backup>("n"), None);
        assert_eq!(find::<Backup>("x"), None);
    }
}
