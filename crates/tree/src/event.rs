//! Events of a running copy. The library prints nothing.

use rustix::fs::FileType;
use std::{
    ffi::CStr,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};
use thalweg_core::{Cancelled, atomic_file::ownership::Distrust};
use thalweg_sys::Errno;

use crate::{Error, SyncChange};

/// Receives the events of a copy. Methods are called concurrently from several threads.
pub trait Events: Sync {
    /// Reports an event about one file.
    fn event(&self, event: &Event<'_>) {
        let _ = event;
    }

    /// Reports a difference that a comparison found.
    fn finding(&self, finding: &Finding<'_>) {
        let _ = finding;
    }

    /// Reports the progress of the whole copy, about twenty times per second while bytes are moved.
    fn progress(&self, progress: Progress) {
        let _ = progress;
    }

    /// Reports the source that a worker is copying. Called about as often as `progress`, and for every large file.
    fn current(&self, source: &Path) {
        let _ = source;
    }

    /// Returns `true` if this existing file may be replaced (`-i`). Only one call is active at a time.
    fn ask(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Called between files and between the steps of a large one. An error cancels the copy.
    fn go_on(&self) -> Result<(), Cancelled> {
        Ok(())
    }
}

/// Ignores all events.
impl Events for () {}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of complete files.
    pub files: u64,
    /// Bytes moved, including those of incomplete files.
    pub bytes: u64,
    /// Source files that were copied, linked, cloned or skipped, and their sizes. At the end, this total equals the
    /// result of [`count`](crate::count()).
    pub settled: Total,
}

/// The progress of all threads of an operation.
#[derive(Debug, Default)]
pub(crate) struct ProgressSum([AtomicU64; 4]);

impl ProgressSum {
    /// Adds the progress of a thread since its last report. Returns the progress of all threads.
    pub fn add(&self, done: Progress) -> Progress {
        let Progress { files, bytes, settled } = done;
        let add = |at: usize, more| self.0[at].fetch_add(more, Ordering::Relaxed) + more;
        let settled = Total { files: add(2, settled.files), bytes: add(3, settled.bytes) };
        Progress { files: add(0, files), bytes: add(1, bytes), settled }
    }
}

/// An event about one file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The file was copied, or would be in a dry run. Only with `verbose`.
    Copied {
        /// The source.
        source: &'a Path,
        /// The destination.
        destination: &'a Path,
        /// The backup of the replaced file.
        backup: Option<&'a Path>,
    },
    /// An existing destination was replaced, and the copy inherited neither its mode nor its owner. `cp` removes such
    /// a file first. Only with `verbose`, and before [`Event::Copied`].
    Removed {
        /// The destination.
        destination: &'a Path,
    },
    /// The file was skipped. Only with `verbose`.
    Skipped {
        /// The existing destination.
        destination: &'a Path,
        /// The reason.
        reason: Skip,
    },
    /// The filter excluded the entry and everything below it. Only with `verbose`.
    LeftOut {
        /// The source.
        source: &'a Path,
    },
    /// The existing file keeps its inode and is written into, as `cp` does. A new file could not be created in its
    /// directory or renamed over it. A reader may see an incomplete file during the copy. Only with `verbose`.
    WrittenInto {
        /// The existing destination.
        destination: &'a Path,
        /// The reason why the file could not be replaced.
        refusal: &'a Error,
    },
    /// The file is a hard link in the source, but a separate copy in the destination.
    NotLinked {
        /// The copy.
        destination: &'a Path,
        /// The errno of linkat(2).
        errno: Errno,
    },
    /// The file was copied without an extended attribute of its source.
    AttributeDropped {
        /// The copy.
        destination: &'a Path,
        /// The attribute.
        name: &'a CStr,
        /// The errno of setxattr(2).
        errno: Errno,
    },
    /// The copies of a dry run need more space than is free in the file system of the destination.
    NoRoom {
        /// The directory that the copies go to.
        destination: &'a Path,
        /// Bytes that the copies need.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A leftover partial file or directory was neither resumed nor removed, because another user may have created
    /// it.
    LeftAlone {
        /// The leftover.
        path: &'a Path,
        /// The reason why the leftover is not trusted.
        why: Distrust,
    },
    /// A sync changed an entry, or would change it in a dry run. Only with `verbose`.
    Sync(&'a SyncChange<'a>),
    /// The file could not be copied.
    Failed(&'a Error),
    /// The file was copied, but not all of its attributes.
    Incomplete(&'a Error),
    /// The source changed while it was read: the copy may contain a mix of old and new data.
    Changed {
        /// The source.
        source: &'a Path,
    },
    /// An earlier run finished this file, judging by size and time, but it differs from the source. It is copied again.
    Again {
        /// The copy.
        destination: &'a Path,
    },
    /// The caller named a source twice. It is copied once.
    NamedTwice {
        /// The source.
        source: &'a Path,
    },
}

/// The reason why a file was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The file exists, and nothing may be replaced.
    Exists,
    /// The existing file is as new as the source, or newer.
    Newer,
    /// The user declined.
    Declined,
    /// An earlier run finished the file.
    Done,
    /// The file already is the requested link to its source.
    Linked,
}

/// The reason why a copy ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// [`Events::go_on`] returned an error.
    Cancelled,
    /// The destination accepts no more data: full, over quota, or read-only.
    Full,
}

/// A number of files with contents, and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of names of regular files: a hard link counts each time it is met.
    pub files: u64,
    /// Sum of their sizes, including holes.
    pub bytes: u64,
}

/// A difference between both sides.
#[derive(Debug)]
pub enum Finding<'a> {
    /// The entry exists on both sides and differs.
    Differs {
        /// The path in the destination.
        path: &'a Path,
        /// The difference.
        how: DifferenceKind,
    },
    /// The entry exists only in the source.
    Missing {
        /// The path that it would have in the destination.
        path: &'a Path,
        /// The file type.
        kind: FileType,
    },
    /// The entry exists only in the destination.
    Extra {
        /// The path in the destination.
        path: &'a Path,
        /// The file type.
        kind: FileType,
    },
}

impl Finding<'_> {
    /// Returns the path in the destination.
    pub fn path(&self) -> &Path {
        match self {
            Self::Differs { path, .. } | Self::Missing { path, .. } | Self::Extra { path, .. } => {
                path
            }
        }
    }
}

/// The difference between two entries with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The file types: in the source, in the destination.
    Kind(FileType, FileType),
    /// The sizes: in the source, in the destination.
    Size(u64, u64),
    /// The offset of the first byte that differs.
    Byte(u64),
    /// The hash differs from the one in this line of the manifest.
    Hash(usize),
    /// The target of the symbolic link.
    Target,
    /// The device number.
    Device,
    /// The names of the attributes that differ.
    Attributes(Vec<&'static str>),
}
