//! Arguments of `thalweg copy`.

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
};
use std::{ffi::OsString, path::PathBuf};
use thalweg_core::quantity::parse_rate;
use thalweg_tree::Hash;

use crate::args::{Abbreviated, FsyncArgs, HashName, MethodArgs, ProgressArgs, flag};
use crate::remote::RemoteArgs;

mod chosen;
mod fleet;
mod kept;
mod plain;
pub use chosen::FilterArgs;
pub use fleet::ShardArgs;
use kept::PreserveArgs;

const SAFETY: &str = "Safety";
const SPEED: &str = "Speed";

/// Copy files and directories
///
/// The options of cp, and their abbreviations, mean the same as in cp. A copy appears under its final name only when it
/// is complete. `-` means standard input or standard output.
///
/// Replacing a file creates a new inode: other hard links keep the old contents. The new file belongs to you if the
/// owner cannot be kept. If thalweg cannot create a file in the directory of the destination, it overwrites the
/// existing file in place, as cp does; --inplace always does this.
///
/// Standard output has only what you request: the lines of -v and --dry-run, the table of --tune, or the object of
/// --json. thalweg prints a summary to standard error if standard error is a terminal, or with --verify, --resume or
/// --progress=always; -q suppresses it.
#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES, args_override_self = true, infer_long_args = true)]
pub struct CopyArgs {
    /// Sources, then the destination
    // clap's parser for paths would reject an empty path. This parser accepts it, and the copy reports a missing file.
    #[arg(required_unless_present = "shard", num_args = 1.., value_name = "SRC... DST")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub paths: Vec<PathBuf>,

    /// Copy directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub kept: PreserveArgs,
    /// Copy only attributes, no data
    #[arg(long)]
    pub attributes_only: bool,
    /// Copy the contents of special files when recursive
    #[arg(long)]
    pub copy_contents: bool,
    /// Make hard links instead of copies
    #[arg(short, long)]
    pub link: bool,
    /// Make symbolic links instead of copies
    #[arg(short, long)]
    pub symbolic_link: bool,
    /// Control which existing files are replaced; -u means older
    #[arg(short, long, value_name = "WHEN", value_parser = Abbreviated::<UpdateWhen>::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "older")]
    pub update: Option<UpdateWhen>,
    /// Do not overwrite existing files; overrides -f and -i
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Prompt before overwriting
    #[arg(short, long)]
    pub interactive: bool,
    /// If an existing file cannot be opened, remove it and try again
    #[arg(short, long)]
    pub force: bool,
    /// Remove each existing destination file before copying
    // cp accepts these abbreviations. Without the aliases, `--remote-program` would make them ambiguous.
    #[arg(long, aliases = ["rem", "remo"])]
    pub remove_destination: bool,
    /// Make a backup of each file that is overwritten
    #[arg(long, value_name = "CONTROL", value_parser = Abbreviated::<BackupControl>::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub backup: Option<BackupControl>,
    /// Like --backup, but takes no value
    #[arg(short)]
    pub backups: bool,
    /// Set the suffix of simple backups; implies --backup
    #[arg(short = 'S', long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub suffix: Option<OsString>,
    /// Never copy into DST, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub no_target_directory: bool,
    /// Copy all sources into this directory
    #[arg(short, long, value_name = "DIR", allow_hyphen_values = true)]
    pub target_directory: Option<PathBuf>,
    /// Keep the full path of each source below DST
    #[arg(long)]
    pub parents: bool,
    /// Remove trailing slashes from each source
    #[arg(long)]
    pub strip_trailing_slashes: bool,
    /// Follow existing symbolic links to directories in the destination
    #[arg(long)]
    pub keep_directory_symlink: bool,
    /// Stay on the file system of each source
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Control holes in the copies
    #[arg(long, value_name = "WHEN", env = "THALWEG_SPARSE", hide_env = true)]
    #[arg(value_parser = Abbreviated::<Sparse>::new(), default_value = "auto")]
    pub sparse: Sparse,
    /// Control clones, which share blocks with the source until either file changes
    #[arg(long, value_name = "WHEN", env = "THALWEG_REFLINK", hide_env = true)]
    #[arg(value_parser = Abbreviated::<ReflinkWhen>::new(), default_value = "auto")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub reflink: ReflinkWhen,
    /// Set the SELinux context of new files
    #[arg(short = 'Z', long, value_name = "CTX")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub context: Option<OsString>,
    /// Print each copied file as 'SRC' -> 'DST'; -vv also prints skipped files
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true)]
    #[arg(action = ArgAction::Count, value_parser = level)]
    pub verbose: u8,
    /// Like -vv, and print the method and failed methods to standard error
    #[arg(long)]
    pub debug: bool,

    #[command(flatten)]
    pub chosen: FilterArgs,

    /// Continue an interrupted copy of the same sources
    #[arg(long, help_heading = SAFETY)]
    pub resume: bool,
    /// Compare each copy with its source by a hash: blake3 (the default) or xxh3
    ///
    /// This includes unchanged files. With --resume, files that differ are copied again; otherwise they are reported.
    /// The copies are read from the page cache. With `device` (or `xxh3,device`), thalweg syncs the copies and reads
    /// them from the disk.
    #[arg(long, value_name = "HASH|device", env = "THALWEG_VERIFY", hide_env = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "blake3")]
    #[arg(value_parser = Verify::parse)]
    #[arg(help_heading = SAFETY)]
    pub verify: Option<Verify>,
    /// Write the hashes of the copies to this file, as `thalweg manifest` does
    ///
    /// The file is not written if anything failed.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", help_heading = SAFETY)]
    pub manifest: Option<PathBuf>,
    /// Set the hash function of the manifest
    #[arg(long, value_name = "HASH", value_enum, requires = "manifest")]
    #[arg(default_value_t = HashName::Blake3, help_heading = SAFETY)]
    pub manifest_hash: HashName,
    #[command(flatten, next_help_heading = SAFETY)]
    pub durable: FsyncArgs,
    /// Write directly into existing files instead of temporary files; makes no backups
    #[arg(long, help_heading = SAFETY)]
    pub inplace: bool,
    /// Print what would be copied, and copy nothing
    #[arg(long, help_heading = SAFETY)]
    pub dry_run: bool,

    /// Copy this many files at the same time [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true, help_heading = SPEED)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Limit the rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate, help_heading = SPEED)]
    pub limit: Option<u64>,
    /// Measure the methods first, for up to three seconds, and use the fastest
    #[arg(long, env = "THALWEG_TUNE", hide_env = true, value_parser = flag())]
    #[arg(help_heading = SPEED)]
    pub tune: bool,

    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub fleet: ShardArgs,
    #[command(flatten)]
    pub choice: MethodArgs,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

impl CopyArgs {
    /// Returns `true` if the command prints the name of each copied file.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0 || self.debug
    }

    /// Returns `true` if the command prints the name of each skipped file.
    pub fn names_skipped(&self) -> bool {
        self.verbose > 1 || self.debug
    }
}

/// Files that may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UpdateWhen {
    /// Replace all files
    All,
    /// Replace files that are older than their source
    Older,
    /// Replace no files
    None,
    /// Replace no files, and fail if one exists
    NoneFail,
}

/// Backups of overwritten files, as in cp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackupControl {
    /// Make no backups
    #[value(alias = "off")]
    None,
    /// Name backups NAME.~1~, NAME.~2~ and so on
    #[value(alias = "t")]
    Numbered,
    /// Numbered if numbered backups exist, otherwise simple
    #[value(alias = "nil")]
    Existing,
    /// Name backups NAME~
    #[value(alias = "never")]
    Simple,
    /// The value of VERSION_CONTROL, or existing
    #[value(name = "", hide = true)]
    Unset,
}

/// Holes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sparse {
    /// Keep the holes of the source
    #[default]
    Auto,
    /// Make a hole of every run of zeros
    Always,
    /// Make no holes
    Never,
}

/// Clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReflinkWhen {
    /// Clone if possible, otherwise copy
    #[default]
    Auto,
    /// Clone, or fail
    Always,
    /// Copy the data
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
                _ => return Err("expected blake3, xxh3, device, or HASH,device".to_owned()),
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
  thalweg copy --tune big.iso /mnt/usb/      use the fastest method
  thalweg copy -a --jobs 4 photos/ /backup/  a directory with all attributes
  thalweg copy --resume -a photos/ /backup/  continue after an interruption
  thalweg copy -a --exclude '*.o' --exclude /build src/ /backup/
  thalweg copy --verify --fsync db.dump /mnt/nas/
  journalctl | thalweg copy - /tmp/log       standard input to a file
  mpirun -n 8 thalweg copy -a --shard auto /lustre/a /gpfs/b

Exit status:
  0  success
  1  error, or data that differs
  2  wrong usage
  3  incomplete (use --resume to continue), or a source changed during the copy
  4  not supported here";

/// Parses the level of `-v` from the environment: a number, or a word as in [`flag`].
#[expect(clippy::unnecessary_wraps, reason = "clap requires a Result of its parsers")]
fn level(text: &str) -> Result<u8, String> {
    let is_off =
        matches!(text.to_ascii_lowercase().as_str(), "" | "n" | "no" | "f" | "false" | "off");
    Ok(if is_off { 0 } else { text.parse().unwrap_or(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::find;

    #[test]
    fn a_beginning_counts_where_it_means_one_thing() {
        assert_eq!(find("num"), Some(BackupControl::Numbered));
        assert_eq!(find("t"), Some(BackupControl::Numbered));
        // Ambiguous: none, numbered, never, nil.
        assert_eq!(find::<BackupControl>("n"), None);
        assert_eq!(find::<BackupControl>("x"), None);
    }
}
