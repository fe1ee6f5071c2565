//! Arguments of `thalweg sync`.

use clap::{ArgAction, Args};
use std::path::PathBuf;
use thalweg_core::quantity::parse_rate;

use crate::{
    args::{FsyncArgs, GivenArgs, ProgressArgs, SelectionArgs},
    remote::RemoteArgs,
};

const DELETION: &str = "Deletion";
const SAFETY: &str = "Safety";
const SPEED: &str = "Speed";
const ALWAYS_SHORT: [char; 12] = ['r', 'l', 'p', 't', 'g', 'o', 'D', 'H', 'A', 'X', 'S', 'P'];
const ALWAYS: [&str; 15] = [
    "recursive",
    "links",
    "perms",
    "times",
    "group",
    "owner",
    "devices",
    "specials",
    "hard-links",
    "acls",
    "xattrs",
    "sparse",
    "partial",
    "append",
    "numeric-ids",
];

/// Make a directory equal to another one
///
/// The content of a SRC directory becomes the content of DST; `SRC` and `SRC/` mean the same. Several SRC, or a file,
/// become entries of DST, which must exist.
///
/// thalweg copies directories, symbolic links, hard links, modes, times, ACLs and extended attributes, and owners as
/// far as permitted. Files with equal size and modification time count as equal. If only the attributes of a file
/// differ, thalweg changes only the attributes.
///
/// Nothing is deleted without --delete. Deletion starts after everything else succeeded. thalweg refuses to delete if
/// SRC is empty, if an entry failed, or if a directory of SRC vanished or cannot be listed. It also refuses if SRC is
/// on another file system than at the last --delete, or if more than --max-delete entries would be deleted. --force
/// overrides this, except below a directory that cannot be listed.
///
/// SRC or DST may be on another machine, as HOST:PATH. thalweg then connects with ssh, once for each SRC.
///
/// A directory is replaced by a file only with --delete. With several SRC, --delete deletes only inside the copies of
/// the SRC directories. Between machines, --delete requires a single SRC, which must be a directory.
#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES, args_override_self = true, infer_long_args = true)]
pub struct SyncArgs {
    /// Sources, then the destination
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    pub paths: Vec<PathBuf>,

    /// Has no effect: thalweg always does what -a of rsync does
    // The aliases are options of rsync without an effect here: thalweg always keeps attributes, holes, numeric owners
    // and partial files, and shows progress on a terminal.
    #[arg(short, long, short_aliases = ALWAYS_SHORT, aliases = ALWAYS)]
    pub archive: bool,
    /// Compare the bytes of files with equal sizes, not their times
    #[arg(short, long)]
    pub checksum: bool,
    /// Make hard links to equal files of this earlier copy of SRC, instead of copying them
    ///
    /// This makes snapshots: `sync --reference backup/1 SRC backup/2`. Two files are equal if their sizes, times and
    /// attributes are equal.
    #[arg(long, value_name = "DIR", visible_alias = "link-dest")]
    pub reference: Option<PathBuf>,
    /// Follow all symbolic links in SRC
    #[arg(short = 'L', long)]
    pub copy_links: bool,
    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Print one line per change, as rsync -i does
    #[arg(short, long, visible_alias = "itemize-changes")]
    pub itemize: bool,
    /// Like -i; -vv also prints excluded entries
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print the lines of -i, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Append the lines of -i and the summary to this file
    #[arg(long, value_name = "FILE", visible_alias = "log-file")]
    pub log: Option<PathBuf>,

    /// Delete entries of DST that SRC does not have
    #[arg(long, help_heading = DELETION)]
    pub delete: bool,
    /// Also delete excluded entries of DST; implies --delete
    #[arg(long, help_heading = DELETION)]
    pub delete_excluded: bool,
    /// Delete nothing if more than N entries would be deleted [default: half of the entries of DST, or no limit if DST
    /// has at most 100 entries]
    #[arg(long, value_name = "N", help_heading = DELETION)]
    pub max_delete: Option<u64>,
    /// Copy renamed files instead of linking them
    ///
    /// Without this option, a new file of at least 16K becomes a hard link to an equal file that is about to be
    /// deleted.
    #[arg(long, help_heading = DELETION)]
    pub no_detect_renames: bool,
    // The default; it overrides `--no-detect-renames`.
    #[arg(long, hide = true, overrides_with = "no_detect_renames")]
    pub detect_renames: bool,
    /// Move deleted and replaced entries to this directory
    ///
    /// The entries keep their paths relative to DST. If a name already exists in DIR, thalweg adds a number to the new
    /// name. Nothing in DIR is replaced.
    #[arg(long, value_name = "DIR", visible_alias = "backup-dir", help_heading = DELETION)]
    pub trash: Option<PathBuf>,
    /// Delete even if thalweg would refuse, and accept a SRC that overlaps DST
    #[arg(long, help_heading = DELETION)]
    pub force: bool,

    #[command(flatten)]
    pub chosen: SelectionArgs,

    #[command(flatten)]
    pub given: GivenArgs,

    /// Compare each copied and each unchanged file with its source by a hash
    #[arg(long, help_heading = SAFETY)]
    pub verify: bool,
    #[command(flatten, next_help_heading = SAFETY)]
    pub durable: FsyncArgs,

    /// Copy this many files at the same time [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true, help_heading = SPEED)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Limit the rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate, help_heading = SPEED, visible_alias = "bwlimit")]
    pub limit: Option<u64>,

    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

impl SyncArgs {
    /// Returns `true` if each change is printed.
    pub fn prints_changes(&self) -> bool {
        self.itemize || self.verbose > 0 || self.dry_run
    }

    /// Returns `true` if extra entries are deleted.
    pub fn deletes(&self) -> bool {
        self.delete || self.delete_excluded
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg sync -n --delete photos /backup/photos    show what would change
  thalweg sync --delete photos /backup/photos       make the backup equal
  thalweg sync -i src /backup/src                   print one line per change
  thalweg sync --checksum src /mnt/usb/src          compare the bytes, too
  thalweg sync --delete --exclude '*.o' src /backup/src
  thalweg sync --delete --trash /backup/old src /backup/src
  thalweg sync --reference /backup/1 src /backup/2  a snapshot of changes
  thalweg sync docs music /backup/                  /backup/docs, /backup/music

Lines of -i:
  >f+++++++++ new          a new file (cd: directory, cL: link, hf: hard link)
  >f.st...... changed      a replaced file: size and time differed
  .f...p..... script       only the permissions changed
  *deleting   old          a deleted entry

Exit status:
  0  success
  1  error, or thalweg refused to delete
  2  wrong usage
  3  incomplete (run the command again), or a source changed during the copy
  4  not supported here";
