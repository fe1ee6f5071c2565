//! What the person who copies wants, as plain data.

use std::{ffi::OsString, path::PathBuf, sync::Arc};
use thalweg_core::{Guarantees, Profile, Request, atomic_file::Fsync, mechanisms::LAST_RESORT};

/// Which symbolic links of the source are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dereference {
    /// None: links are copied as links (`-P`).
    Never,
    /// All of them (`-L`).
    Always,
    /// Those named on the command line (`-H`).
    CommandLine,
}

/// When to do something that is not always possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Where it works and helps.
    #[default]
    Auto,
    /// Always, or fail.
    Always,
    /// Not at all.
    Never,
}

/// How the name of the destination is to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// An existing directory takes the sources in; anything else is the name of the copy.
    #[default]
    Guess,
    /// It is a directory that takes the sources in (`-t`).
    Directory,
    /// It is the name of the copy, whatever is there (`-T`).
    Exact,
}

/// How a file that is replaced is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// Not at all.
    #[default]
    None,
    /// As `NAME~`, over an older backup.
    Simple,
    /// As `NAME.~N~` with the next number.
    Numbered,
    /// Numbered where numbered backups exist, else simple.
    Existing,
}

/// What a file of the source becomes in the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Becomes {
    /// A file with the same bytes.
    #[default]
    Copy,
    /// Another name of the same file (`-l`).
    HardLink,
    /// A symbolic link to the source (`-s`).
    SymbolicLink,
}

/// Which existing files may be replaced (`--update`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// All.
    #[default]
    All,
    /// Those that are older than their source (`-u`).
    Older,
    /// None; they are left as they are.
    None,
    /// None; each is a failure.
    NoneFail,
}

/// Leaves parts of a tree out.
pub trait Filter: std::fmt::Debug + Send + Sync {
    /// Whether to leave this out, with all below it. The path begins in the source that the caller
    /// named, which is `../NAME` itself, or in [`CopyOptions::inside`].
    fn leaves_out(&self, path: &std::path::Path, is_directory: bool) -> bool;
}

/// A hash to compare files by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Cryptographic, and what most tools know.
    Sha256,
    /// Cryptographic, and fast.
    Blake3,
    /// Not cryptographic, and faster.
    Xxh3,
}

/// Attributes that a copy takes over from its source.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits, set-id and sticky bits among them.
    pub mode: bool,
    /// Times of access and modification, to the nanosecond.
    pub times: bool,
    /// Owner and group, as far as permitted.
    pub owner: bool,
    /// Hard links between the files of one run.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Access control lists.
    pub acl: bool,
    /// The SELinux label.
    pub context: bool,
    /// An extended attribute that the destination refuses is an error; a list always is.
    pub strict: bool,
}

impl Preserve {
    /// What `-p` keeps: mode, times, owner, and the list that belongs to the mode.
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

    /// What `-a` keeps: all there is.
    pub const fn all() -> Self {
        Self { links: true, xattrs: true, ..Self::usual() }
    }

    /// Whether extended attributes have to be looked at, for themselves or for the lists in them.
    pub(crate) const fn looks_at_xattrs(self) -> bool {
        self.xattrs || self.acl || self.context
    }
}

/// Everything that can be asked of a copy. The default copies single files as plain `cp` does.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Copy directories with all they hold (`-r`).
    pub recursive: bool,
    /// Which links to follow; `None` follows all, or none when recursive, as `cp` does.
    pub dereference: Option<Dereference>,
    /// Attributes to take over.
    pub preserve: Preserve,
    /// Permission bits for new files, less the umask, whatever their sources have: a pipe's say
    /// nothing about the bytes in it, and `--no-preserve=mode` asks for it. New directories may be
    /// searched besides. `None` takes the source's, as `cp` does.
    pub new_mode: Option<u32>,
    /// Holes: where the source has them, wherever it has zeros, or nowhere.
    pub sparse: When,
    /// Clones that share blocks: where possible, or fail, or never.
    pub reflink: When,
    /// Which existing files may be replaced.
    pub update: Update,
    /// Replace nothing (`-n`).
    pub no_clobber: bool,
    /// Replace also what may not be written (`-f`).
    pub force: bool,
    /// Ask before replacing (`-i`), by [`Events::ask`](crate::Events::ask).
    pub interactive: bool,
    /// What becomes of the files: copies, or links to them.
    pub becomes: Becomes,
    /// Copy attributes, and no bytes (`--attributes-only`).
    pub attributes_only: bool,
    /// Read special files met in a tree instead of making new ones (`--copy-contents`).
    pub copy_contents: bool,
    /// Take existing files away instead of following links and keeping attributes
    /// (`--remove-destination`).
    pub remove_destination: bool,
    /// A destination that is a link to nothing gets its file where it leads (`POSIXLY_CORRECT`).
    pub through_dangling: bool,
    /// A link to a directory in the destination may stand for a directory (`--keep-directory-symlink`).
    pub keep_directory_symlink: bool,
    /// Sources keep the directories of their paths, below the destination (`--parents`).
    pub parents: bool,
    /// The sources are paths inside this directory, and keep theirs below the destination.
    pub inside: Option<PathBuf>,
    /// What to leave out.
    pub filter: Option<Arc<dyn Filter>>,
    /// What the destination's name means.
    pub target: Target,
    /// Tell of every file done, not only of problems.
    pub verbose: bool,
    /// Stay on the file system of each source (`-x`).
    pub one_file_system: bool,
    /// Keep what is replaced.
    pub backup: Backup,
    /// What a simple backup's name ends with; empty means `~`.
    pub suffix: OsString,
    /// Threads; 0 means as many as there are processors.
    pub jobs: usize,
    /// Write into existing files instead of replacing them whole. A reader may then see a part.
    pub inplace: bool,
    /// Go on where an earlier run was interrupted, and leave what a later run can go on from.
    pub resume: bool,
    /// Read every copy again and compare it with its source. What was written a moment ago mostly comes from the page
    /// cache: this finds errors of the copy, and none of the device.
    pub verify: Option<Hash>,
    /// For `verify`, sync each copy and drop its pages first, so that it is read from the device.
    /// [`Verified::from_memory`](crate::Verified::from_memory) counts those for which that was not possible.
    pub verify_device: bool,
    /// Keep the names of all files that the copy answers for, [`TreeReport::listed`](crate::TreeReport::listed), for a
    /// list that will be written here. A source that this is the name of is a problem: the list would replace it.
    pub list: Option<PathBuf>,
    /// What must be on stable storage.
    pub fsync: Fsync,
    /// Bytes per second not to exceed, over all threads.
    pub limit: Option<u64>,
    /// Change nothing, only tell what would be done.
    pub dry_run: bool,
    /// Keep large files out of the page cache, by the mechanism for that.
    pub direct: bool,
    /// What the planner is asked for.
    pub request: Request,
    /// What the caller will not give up. `durable` is ignored here: see `fsync`.
    pub needs: Guarantees,
    /// What was measured on this machine.
    pub profile: Option<Arc<Profile>>,
}

impl CopyOptions {
    /// What `-a` means: recursive, links as links, everything kept.
    pub fn archive() -> Self {
        Self {
            recursive: true,
            dereference: Some(Dereference::Never),
            preserve: Preserve::all(),
            ..Self::default()
        }
    }

    /// Whether a link met in a source directory, or named by the caller, is followed.
    pub(crate) fn follows(&self, named_by_caller: bool) -> bool {
        match self.dereference {
            // As in cp: a tree of hard links is one of the files that the links lead to.
            None => !self.recursive || self.becomes == Becomes::HardLink,
            Some(Dereference::Always) => true,
            Some(Dereference::Never) => false,
            Some(Dereference::CommandLine) => named_by_caller,
        }
    }

    /// Whether a file may be met again under another name that is to be linked to the first.
    pub(crate) fn links_names(&self, named_by_caller: bool, names: u64) -> bool {
        self.preserve.links && (names > 1 || self.follows(named_by_caller))
    }

    /// Whether special files are read, as far as there is an end to them, and not made anew.
    pub(crate) fn reads_specials(&self) -> bool {
        !self.recursive || self.copy_contents
    }

    /// Whether the name of the copy is looked at, and not what a link there leads to.
    pub(crate) fn replaces_links(&self) -> bool {
        self.backup != Backup::None || self.remove_destination || self.becomes != Becomes::Copy
    }

    /// Whether nothing that exists may be replaced.
    pub(crate) fn replaces_nothing(&self) -> bool {
        self.no_clobber || matches!(self.update, Update::None | Update::NoneFail)
    }

    /// Whether something that exists can be a reason not to make a copy.
    pub(crate) fn may_skip(&self) -> bool {
        let is_skipped = self.no_clobber || matches!(self.update, Update::None | Update::Older);
        is_skipped || self.interactive
    }

    /// Permission bits for a new directory, less the umask. The kernel keeps the sticky bit, as in `cp`.
    pub(crate) fn directory_mode(&self, source: u32) -> u32 {
        self.new_mode.map_or(source & 0o1777, |mode| mode | (mode & 0o444) >> 2)
    }

    /// Whether sources keep the directories of their paths.
    pub(crate) fn keeps_paths(&self) -> bool {
        self.parents || self.inside.is_some()
    }

    /// Whether small files may go by one read and one write without asking the planner.
    pub(crate) fn allows_single_write(&self) -> bool {
        let plain = LAST_RESORT.info().name;
        let asked = self.request.only.as_deref().is_none_or(|only| only == plain);
        asked && !self.direct && !self.request.without.iter().any(|name| name == plain)
    }
}
