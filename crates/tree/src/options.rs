//! The options of a copy, as plain data.

use std::{ffi::OsString, path::PathBuf, sync::Arc};
use thalweg_core::{Guarantees, Profile, Request, atomic_file::Fsync, mechanisms::LAST_RESORT};

use crate::{
    given::{FileLimits, GivenAttributes},
    kept::KeptEntries,
    twins::Twins,
};

/// Selects the symbolic links of the source that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dereference {
    /// No symbolic links: they are copied as links (`-P`).
    Never,
    /// All symbolic links (`-L`).
    Always,
    /// Only those named on the command line (`-H`).
    CommandLine,
}

/// Selects when to use a feature that is not always available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Use the feature if it is available and useful.
    #[default]
    Auto,
    /// Always; fail if it is not available.
    Always,
    /// Never.
    Never,
}

/// The interpretation of the destination name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// An existing directory receives the sources; any other name is the name of the copy.
    #[default]
    Guess,
    /// The destination is a directory that receives the sources (`-t`).
    Directory,
    /// The destination is the name of the copy, even if a directory of this name exists (`-T`).
    Exact,
}

/// The backup of replaced files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// No backup.
    #[default]
    None,
    /// As `NAME~`, replacing an older backup.
    Simple,
    /// As `NAME.~N~` with the next free number.
    Numbered,
    /// Numbered if numbered backups exist, otherwise simple.
    Existing,
}

/// The kind of entry that a source file becomes in the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Becomes {
    /// A copy of the bytes.
    #[default]
    Copy,
    /// A hard link to the source (`-l`).
    HardLink,
    /// A symbolic link to the source (`-s`).
    SymbolicLink,
}

/// Selects the existing files that may be replaced (`--update`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// All existing files.
    #[default]
    All,
    /// Only files that are older than their source (`-u`).
    Older,
    /// None; existing files are skipped.
    None,
    /// None; each existing file is an error.
    NoneFail,
}

/// Selects the handling of an existing directory that a file or a link of the source replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverDirectory {
    /// The entry fails.
    #[default]
    Refuse,
    /// The entry is skipped and listed in [`TreeReport::deferred`](crate::TreeReport::deferred).
    Defer,
    /// In a dry run, the directory counts as removed.
    AssumeGone,
}

/// The rules by which a sync compares existing entries with their sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRules {
    /// Compare the bytes of files with equal sizes. Otherwise files with equal size and modification time count as
    /// equal.
    pub checksum: bool,
    /// Handling of an existing directory that a file or a link replaces.
    pub over_directory: OverDirectory,
    /// `true` if the sources become entries of the destination; `false` if the destination gets the content of the one
    /// source.
    pub has_entries: bool,
}

/// Excludes parts of a tree.
pub trait Filter: std::fmt::Debug + Send + Sync {
    /// Returns `true` to exclude this entry and everything below it. The path is relative to the source that the
    /// caller named, or to [`CopyOptions::inside`]. The source itself has the path `../NAME`.
    fn leaves_out(&self, path: &std::path::Path, is_directory: bool) -> bool;
}

/// The hash used to compare files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Cryptographic; supported by most tools.
    Sha256,
    /// Cryptographic and fast.
    Blake3,
    /// Not cryptographic, but faster.
    Xxh3,
}

/// Attributes that a copy gets from its source.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits, including set-id and sticky bits.
    pub mode: bool,
    /// Access and modification time, with nanoseconds.
    pub times: bool,
    /// Owner and group, as far as permitted.
    pub owner: bool,
    /// Hard links between the files of one copy.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Access control lists.
    pub acl: bool,
    /// The SELinux label.
    pub context: bool,
    /// `true` if an extended attribute that the destination refuses is an error. A refused ACL is always an error.
    pub strict: bool,
}

impl Preserve {
    /// Returns the attributes of `-p`: mode, times, owner, and the ACL that belongs to the mode.
    pub const fn usual() -> Self {
        Self {
            mode: true,
            times: true,
            owner: true,
            links: false,
            xattrs: false,
            acl: true,
            context: false,
            strict: false,
        }
    }

    /// Returns the attributes of `-a`: those of `-p`, hard links and extended attributes, but not the SELinux label.
    pub const fn all() -> Self {
        Self { links: true, xattrs: true, ..Self::usual() }
    }

    /// Returns `true` if extended attributes must be read, for themselves or for ACLs and labels.
    pub(crate) const fn looks_at_xattrs(self) -> bool {
        self.xattrs || self.acl || self.context
    }
}

/// The options of a copy. The default copies single files like plain `cp`.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Copy directories recursively (`-r`).
    pub recursive: bool,
    /// Symbolic links to follow. `None` follows all, or none if `recursive`, as `cp` does.
    pub dereference: Option<Dereference>,
    /// Attributes to preserve.
    pub preserve: Preserve,
    /// Permission bits for new files, reduced by the umask, instead of the bits of their sources. Used for
    /// `--no-preserve=mode`, and for pipes, because the mode of a pipe is unrelated to its data. New directories also
    /// get search permission. `None` uses the bits of the source, as `cp` does.
    pub new_mode: Option<u32>,
    /// Holes: `Auto` keeps those of the source, `Always` also makes one of each block of zeros, `Never` makes none.
    pub sparse: When,
    /// Clones that share blocks with the source: if possible, always, or never.
    pub reflink: When,
    /// Existing files that may be replaced.
    pub update: Update,
    /// Replace nothing (`-n`).
    pub no_clobber: bool,
    /// Replace also files without write permission (`-f`).
    pub force: bool,
    /// Ask before a file is replaced (`-i`), with [`Events::ask`](crate::Events::ask).
    pub interactive: bool,
    /// The kind of entry that files become: copies, or links to the source.
    pub becomes: Becomes,
    /// Copy only attributes, no bytes (`--attributes-only`).
    pub attributes_only: bool,
    /// Read special files in a tree instead of creating new ones (`--copy-contents`).
    pub copy_contents: bool,
    /// Remove existing files first, instead of following symbolic links and inheriting attributes
    /// (`--remove-destination`).
    pub remove_destination: bool,
    /// Write through a dangling symbolic link in the destination and create its target (`POSIXLY_CORRECT`).
    pub through_dangling: bool,
    /// Use a symbolic link to a directory in the destination like a directory (`--keep-directory-symlink`).
    pub keep_directory_symlink: bool,
    /// Keep the directories of the source paths, below the destination (`--parents`).
    pub parents: bool,
    /// The directory that the sources are relative to. The sources keep their paths below the destination.
    pub inside: Option<PathBuf>,
    /// The filter that excludes entries.
    pub filter: Option<Arc<dyn Filter>>,
    /// The interpretation of the destination name.
    pub target: Target,
    /// Report every processed file, not only errors.
    pub verbose: bool,
    /// Stay on the file system of each source (`-x`).
    pub one_file_system: bool,
    /// Keep a backup of replaced files.
    pub backup: Backup,
    /// The suffix of simple backups; empty means `~`.
    pub suffix: OsString,
    /// Number of threads; 0 means one per core.
    pub jobs: usize,
    /// Write into existing files instead of replacing them. A reader may then see an incomplete file.
    pub inplace: bool,
    /// Resume an interrupted copy, and leave partial files that a later run can resume.
    pub resume: bool,
    /// Read every copy back and compare it with its source. Data written a moment ago mostly comes from the page
    /// cache, so this finds errors of the copy but not of the device.
    pub verify: Option<Hash>,
    /// With `verify`, sync each copy and drop its pages first, so that it is read from the device.
    /// [`Verified::from_memory`](crate::Verified::from_memory) counts the files for which this was not possible.
    pub verify_device: bool,
    /// Record the names of all copied and skipped files in [`TreeReport::listed`](crate::TreeReport::listed), for a
    /// manifest that the caller will write to this path. A source with this path is an error, because the manifest
    /// would replace it.
    pub list: Option<PathBuf>,
    /// Compare every existing entry with its source, change only the differences, and report each change as
    /// [`Event::Sync`](crate::Event::Sync). Set by [`sync`](crate::sync::sync).
    pub sync: Option<SyncRules>,
    /// The directory that keeps the files which a sync replaces.
    pub kept: Option<Arc<KeptEntries>>,
    /// Finds existing files that new files may be links to.
    pub twins: Option<Arc<dyn Twins>>,
    /// Attributes in place of those of the sources.
    pub given: GivenAttributes,
    /// Files to skip by size or age.
    pub limits: FileLimits,
    /// The data that must be on stable storage at the end.
    pub fsync: Fsync,
    /// Maximum number of bytes per second, over all threads.
    pub limit: Option<u64>,
    /// Change nothing; only report the planned actions.
    pub dry_run: bool,
    /// Keep large files out of the page cache, with direct I/O.
    pub direct: bool,
    /// The request to the planner.
    pub request: Request,
    /// The guarantees that the caller requires. `durable` is ignored here: see `fsync`.
    pub needs: Guarantees,
    /// Measurements of this machine.
    pub profile: Option<Arc<Profile>>,
}

impl CopyOptions {
    /// Returns the options of `-a`: recursive, symbolic links copied as links, attributes preserved.
    pub fn archive() -> Self {
        Self {
            recursive: true,
            dereference: Some(Dereference::Never),
            preserve: Preserve::all(),
            ..Self::default()
        }
    }

    /// Returns `true` if a symbolic link is followed. `named_by_caller`: the caller named it; otherwise it was found
    /// in a directory.
    pub(crate) fn follows(&self, named_by_caller: bool) -> bool {
        match self.dereference {
            // As in GNU `cp`, a tree of hard links contains the targets of symbolic links.
            None => !self.recursive || self.becomes == Becomes::HardLink,
            Some(Dereference::Always) => true,
            Some(Dereference::Never) => false,
            Some(Dereference::CommandLine) => named_by_caller,
        }
    }

    /// Returns `true` if existing entries are compared by content, as `rsync --checksum` does.
    pub(crate) fn compares_bytes(&self) -> bool {
        self.sync.is_some_and(|rules| rules.checksum)
    }

    /// Returns `true` if a walk may meet the file under another name, which is then linked to the first copy.
    pub(crate) fn links_names(&self, named_by_caller: bool, names: u64) -> bool {
        self.preserve.links && (names > 1 || self.follows(named_by_caller))
    }

    /// Returns `true` if special files are read like files and not created as new special files.
    pub(crate) fn reads_specials(&self) -> bool {
        !self.recursive || self.copy_contents
    }

    /// Returns `true` if an existing symbolic link in the destination is replaced and not followed.
    pub(crate) fn replaces_links(&self) -> bool {
        self.backup != Backup::None || self.remove_destination || self.becomes != Becomes::Copy
    }

    /// Returns `true` if no existing entry may be replaced.
    pub(crate) fn replaces_nothing(&self) -> bool {
        self.no_clobber || matches!(self.update, Update::None | Update::NoneFail)
    }

    /// Returns `true` if an existing entry can be a reason to skip its source.
    pub(crate) fn may_skip(&self) -> bool {
        let is_skipped = self.no_clobber || matches!(self.update, Update::None | Update::Older);
        is_skipped || self.interactive
    }

    /// Returns the permission bits for a new directory, which the umask then reduces. The kernel keeps the sticky bit,
    /// as in `cp`.
    pub(crate) fn directory_mode(&self, source: u32) -> u32 {
        self.new_mode.map_or(source & 0o1777, |mode| mode | (mode & 0o444) >> 2)
    }

    /// Returns `true` if sources keep the directories of their paths.
    pub(crate) fn keeps_paths(&self) -> bool {
        self.parents || self.inside.is_some()
    }

    /// Returns `true` if small files may be copied with one read and one write, without the planner.
    pub(crate) fn allows_single_write(&self) -> bool {
        let plain = LAST_RESORT.info().name;
        let asked = self.request.only.as_deref().is_none_or(|only| only == plain);
        asked && !self.direct && !self.request.without.iter().any(|name| name == plain)
    }
}
