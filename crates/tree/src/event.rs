//! What a run tells while it runs. The library prints nothing.

use rustix::fs::FileType;
use std::{ffi::CStr, path::Path};
use thalweg_core::{Cancelled, atomic_file::ownership::Distrust};
use thalweg_sys::Errno;

use crate::Error;

/// Is told what happens in a run. Called from several threads at once.
pub trait Events: Sync {
    /// Something happened to one file.
    fn event(&self, event: &Event<'_>) {
        let _ = event;
    }

    /// A comparison found something that is not the same.
    fn finding(&self, finding: &Finding<'_>) {
        let _ = finding;
    }

    /// How far the whole run is; called some twenty times a second while bytes move.
    fn progress(&self, progress: Progress) {
        let _ = progress;
    }

    /// The source that a worker has in hand; called about as often, and for every large file.
    fn current(&self, source: &Path) {
        let _ = source;
    }

    /// Whether this existing file may be replaced (`-i`). One question at a time.
    fn ask(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Asked between files and between the steps of a large one.
    fn go_on(&self) -> Result<(), Cancelled> {
        Ok(())
    }
}

/// Listens to nothing.
impl Events for () {}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are whole.
    pub files: u64,
    /// Bytes moved, those of unfinished files among them.
    pub bytes: u64,
    /// Source files that are dealt with, whether moved, linked, cloned or left as they were, and
    /// their sizes: what [`count`](crate::count()) counts.
    pub settled: Total,
}

/// What happened to one file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It was copied, or would be in a dry run. Only when verbose.
    Copied {
        /// From here.
        source: &'a Path,
        /// To here.
        destination: &'a Path,
        /// Where what was there before is kept now.
        backup: Option<&'a Path>,
    },
    /// An existing destination gave way, and the copy kept neither its mode nor its owner; `cp` removes it first. Only when
    /// verbose, and before [`Event::Copied`].
    Removed {
        /// The destination.
        destination: &'a Path,
    },
    /// It was left as it was. Only when verbose.
    Skipped {
        /// The existing destination.
        destination: &'a Path,
        /// Why.
        reason: Skip,
    },
    /// The filter left it out, with all below it. Only when verbose.
    LeftOut {
        /// The source.
        source: &'a Path,
    },
    /// It keeps its inode and is written into, as `cp` does: no new file could be made beside it, or
    /// take its name. A reader may see a part meanwhile. Only when verbose.
    WrittenInto {
        /// The existing destination.
        destination: &'a Path,
        /// What was refused.
        refusal: &'a Error,
    },
    /// It is another name of a file in the source, and a copy of its own here.
    NotLinked {
        /// The copy.
        destination: &'a Path,
        /// What linkat(2) answered.
        errno: Errno,
    },
    /// It is copied without an extended attribute of its source.
    AttributeDropped {
        /// The copy.
        destination: &'a Path,
        /// The attribute.
        name: &'a CStr,
        /// What setxattr(2) answered.
        errno: Errno,
    },
    /// The copies of a dry run need more space than is free in the file system of the destination.
    NoRoom {
        /// The directory that the copies go to.
        destination: &'a Path,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// An unfinished file or directory of this name was neither resumed nor removed: another user may have made it.
    LeftAlone {
        /// The leftover.
        path: &'a Path,
        /// How it differs from what this user's own runs leave.
        why: Distrust,
    },
    /// It could not be copied.
    Failed(&'a Error),
    /// It is copied, but not all its attributes are.
    Incomplete(&'a Error),
    /// The source changed while it was read: the copy may hold some of the old and some of the new.
    Changed {
        /// The source.
        source: &'a Path,
    },
    /// An earlier run had finished the copy, by its size and times, and it differs all the same: it
    /// is copied again.
    Again {
        /// The copy.
        destination: &'a Path,
    },
    /// The same source was named twice; it is copied once.
    NamedTwice {
        /// The source.
        source: &'a Path,
    },
}

/// Why a file was left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It exists, and nothing may be replaced.
    Exists,
    /// It is as new as the source, or newer.
    Newer,
    /// The answer was no.
    Declined,
    /// An earlier run finished it.
    Done,
    /// It is another name of its source already, as was asked for.
    Linked,
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// By [`Events::go_on`].
    Cancelled,
    /// The destination takes no more: full, over quota, or read-only.
    Full,
}

/// Files with contents, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Names of regular files: a hard link counts as often as it is met.
    pub files: u64,
    /// Their sizes, holes among them.
    pub bytes: u64,
}

/// Something that is not the same on both sides.
#[derive(Debug)]
pub enum Finding<'a> {
    /// It is on both sides, and differs.
    Differs {
        /// In the destination.
        path: &'a Path,
        /// In what.
        how: How,
    },
    /// It is only in the source.
    Missing {
        /// Where it would be in the destination.
        path: &'a Path,
        /// What it is.
        kind: FileType,
    },
    /// It is only in the destination.
    Extra {
        /// There.
        path: &'a Path,
        /// What it is.
        kind: FileType,
    },
}

impl Finding<'_> {
    /// The path in the destination.
    pub fn path(&self) -> &Path {
        match self {
            Self::Differs { path, .. } | Self::Missing { path, .. } | Self::Extra { path, .. } => {
                path
            }
        }
    }
}

/// In what two things of one name differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// In what they are: in the source, in the destination.
    Kind(FileType, FileType),
    /// In their length: in the source, in the destination.
    Size(u64, u64),
    /// In the byte at this offset, the first of those that differ.
    Byte(u64),
    /// In the hash that the manifest has in this line.
    Hash(usize),
    /// In what the symbolic link says.
    Target,
    /// In the number of the device.
    Device,
    /// In these attributes.
    Attributes(Vec<&'static str>),
}
