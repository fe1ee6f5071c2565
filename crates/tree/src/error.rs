//! The errors of tree operations. They contain the file, the system call and the number of bytes moved.

use std::path::{Path, PathBuf};
use thalweg_core::{
    Cancelled, Side,
    atomic_file::{CallFailed, ownership::Distrust},
    failed::{Failed, loses_written_bytes, quoted},
};
use thalweg_sys::Errno;

/// The calls that set the ACLs of the source on a copy.
pub(crate) const SET_ACCESS_LIST: &str = "fsetxattr system.posix_acl_access";
pub(crate) const SET_DEFAULT_LIST: &str = "fsetxattr system.posix_acl_default";

/// A file or a whole copy that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{}", Failed { what: &quoted(path), call, errno: *errno, moved: *bytes })]
    Call {
        /// The file of the failed call.
        path: PathBuf,
        /// The name of the system call.
        call: &'static str,
        /// The errno that the kernel returned.
        errno: Errno,
        /// Bytes of this file that were moved before the failure.
        bytes: u64,
    },
    /// A mechanism failed in the middle of a file.
    #[error("{}", moving(source_path, path, error))]
    Move {
        /// The source.
        source_path: PathBuf,
        /// The destination.
        path: PathBuf,
        /// The error, with the number of bytes moved before it.
        error: thalweg_core::Error,
    },
    /// The operation is invalid or would destroy data. Nothing was changed.
    #[error("{}: {reason}", quoted(path))]
    Refused {
        /// The file concerned.
        path: PathBuf,
        /// The reason.
        reason: Refusal,
    },
    /// The copy was read back and differs from its source. It was not published.
    #[error(
        "{}: verification failed: the copy differs from its source and was discarded",
        quoted(path)
    )]
    DataDiffer {
        /// The destination.
        path: PathBuf,
    },
    /// A skipped file differs from its source.
    #[error("{}: differs from its source; left unchanged", quoted(path))]
    LeftDiffering {
        /// The destination.
        path: PathBuf,
    },
    /// Sources, destination and options do not fit together.
    #[error("{0}")]
    Usage(String),
}

/// The reason why a file is not copied although no call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `-r` is missing.
    #[error("is a directory (-r not specified)")]
    NotRecursive,
    /// Source and destination are one file.
    #[error("is the same file as {}", quoted(.0))]
    SameFile(PathBuf),
    /// The destination is inside the source.
    #[error("cannot copy a directory into itself, {}", quoted(.0))]
    IntoItself(PathBuf),
    /// A followed symbolic link leads back to a directory that is being copied.
    #[error("cannot copy cyclic symbolic link")]
    Cycle,
    /// An existing directory cannot be replaced by a non-directory.
    #[error("cannot overwrite directory with non-directory")]
    OverDirectory,
    /// An existing non-directory cannot be replaced by a directory.
    #[error("cannot overwrite non-directory with directory")]
    OverNonDirectory,
    /// Two sources have one destination name.
    #[error("will not overwrite just-created file")]
    JustCreated,
    /// The destination is a dangling symbolic link.
    #[error("not writing through dangling symbolic link")]
    Dangling,
    /// The file belongs to another user and is in a directory that every user may write. In sticky
    /// directories, `fs.protected_symlinks` and `fs.protected_regular` make the kernel refuse many such accesses, too.
    #[error("belongs to another user in a world-writable directory; not followed, not written")]
    Trap,
    /// Another user may have created a file that has a temporary name of this program.
    #[error("{0}; remove it first")]
    Foreign(Distrust),
    /// The backup of the destination would overwrite the source.
    #[error("not overwritten: the backup would destroy the source")]
    BackupOverSource,
    /// A source has a name that this program reserves for partial files.
    #[error("not copied: the name is reserved for partial files")]
    ReservedName,
    /// A file was replaced by one of another type during the copy.
    #[error("replaced by an entry of another type during the copy")]
    Replaced,
    /// The file exists, and nothing may be replaced (`--update=none-fail`).
    #[error("not replacing existing file")]
    NotReplaced,
    /// A relative symbolic link can only be created in the current directory. Its path would lead elsewhere from any
    /// other directory.
    #[error("can make relative symbolic links only in current directory")]
    RelativeLink,
    /// The manifest would replace a file that it lists.
    #[error("the manifest would overwrite one of the copies")]
    ManifestOverCopy,
    /// The manifest would replace a source.
    #[error("the manifest would overwrite a source")]
    ManifestOverSource,
    /// A fleet creates a new tree, but the destination already exists.
    #[error("already exists; a sharded copy creates a new directory")]
    NotNew,
    /// The directory looks like a complete copy of a fleet but was written before this boot: a power failure may have
    /// lost its data.
    #[error(
        "the copy was written before the last boot of this machine; its data may be incomplete"
    )]
    NotSince,
    /// The plan of a fleet is invalid.
    #[error("not a valid plan of a sharded copy: {0}")]
    NoPlan(String),
    /// No fleet exists for the destination, and this worker may not create one.
    #[error("no sharded copy found for this directory on this machine")]
    NoFleet,
    /// The plan of a fleet does not exist yet.
    #[error("the sharded copy has no plan yet; the worker of rank 0 creates it")]
    NoPlanYet,
    /// The directory of replaced entries overlaps the source of a sync.
    #[error("overlaps the source, {}", quoted(.0))]
    OverlapsSource(PathBuf),
    /// A source of a sync overlaps the destination.
    #[error("overlaps the destination, {}", quoted(.0))]
    Overlaps(PathBuf),
    /// The source of a move changed after it was copied.
    #[error("changed after it was copied; not deleted")]
    ChangedSince,
    /// The path of a filter file is not a regular file, or the file is too large.
    #[error("cannot be used as a filter file: {0}")]
    NoFilterFile(&'static str),
    /// Another file system is mounted on a directory that a sync would delete.
    #[error("is a mount point; not deleted")]
    MountPoint,
    /// No remaining mechanism can move the file.
    #[error("cannot be copied: {0}")]
    NoMechanism(String),
}

/// Formats the error of a mechanism, with the path of the side on which it happened.
fn moving(source: &Path, sink: &Path, error: &thalweg_core::Error) -> String {
    error.between(&quoted(source), &quoted(sink))
}

impl Error {
    /// Returns the path of the file concerned, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Call { path, .. }
            | Self::Move { path, .. }
            | Self::Refused { path, .. }
            | Self::DataDiffer { path }
            | Self::LeftDiffering { path } => Some(path),
            Self::Usage(_) => None,
        }
    }

    /// Returns `true` if a file was copied without the ACL of its source.
    pub fn is_list_refused(&self) -> bool {
        matches!(self, Self::Call { call: SET_ACCESS_LIST | SET_DEFAULT_LIST, .. })
    }

    /// Returns `true` if bytes that were written before may be lost, even bytes of other files.
    pub(crate) fn loses_written_bytes(&self) -> bool {
        match self {
            Self::Call { call, .. } => loses_written_bytes(call),
            Self::Move { error, .. } => loses_written_bytes(error.call),
            _ => false,
        }
    }

    /// Returns the errno, if a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::Move { error, .. } => Some(error.errno),
            _ => None,
        }
    }
}

/// A failure without paths. Building a path is expensive, so it is done only when the failure becomes an [`Error`].
#[derive(Debug)]
pub(crate) enum CopyFailure {
    /// A call on the source failed.
    Source(&'static str, Errno),
    /// A call on the destination failed after this number of bytes.
    Sink(&'static str, Errno, u64),
    /// A mechanism failed.
    Moved(thalweg_core::Error),
    /// The source was refused.
    RefusedSource(Refusal),
    /// The destination was refused.
    Refused(Refusal),
    /// The copy differs from its source.
    Differ,
    /// The existing file differs from the source and is kept.
    LeftDiffering,
    /// A walk inside a source met the destination directory of that source. Contains the source and the destination.
    IntoItself(PathBuf, PathBuf),
    /// The whole copy is being stopped; the file itself did not fail.
    Cancelled,
    /// The file replaces a directory that a sync has yet to remove. It is copied after that.
    Deferred,
}

pub(crate) type Attempt<T> = Result<T, CopyFailure>;

/// Converts an errno to an error of this call on this path.
pub(crate) fn at_path(path: &Path, call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { path: path.to_owned(), call, errno, bytes: 0 }
}

/// Converts an errno to a failure of this call on the source.
pub(crate) fn at_source(call: &'static str) -> impl Fn(Errno) -> CopyFailure {
    move |errno| CopyFailure::Source(call, errno)
}

/// Converts an errno to a failure of this call on the destination.
pub(crate) fn at_sink(call: &'static str) -> impl Fn(Errno) -> CopyFailure {
    move |errno| CopyFailure::Sink(call, errno, 0)
}

impl From<CallFailed> for CopyFailure {
    fn from(failed: CallFailed) -> Self {
        Self::Sink(failed.call, failed.errno, 0)
    }
}

impl From<CopyFailure> for CallFailed {
    fn from(failure: CopyFailure) -> Self {
        match failure {
            CopyFailure::Sink(call, errno, _) | CopyFailure::Source(call, errno) => {
                Self { call, errno }
            }
            // A call on a staging directory or on attributes has no other failures.
            _ => Self { call: "openat", errno: Errno::INVAL },
        }
    }
}

impl From<Cancelled> for CopyFailure {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl CopyFailure {
    /// Converts the failure to an error with paths.
    pub fn at(self, source: impl FnOnce() -> PathBuf, sink: impl FnOnce() -> PathBuf) -> Error {
        match self {
            Self::Source(call, errno) => Error::Call { path: source(), call, errno, bytes: 0 },
            Self::Sink(call, errno, bytes) => Error::Call { path: sink(), call, errno, bytes },
            Self::Moved(error) => Error::Move { source_path: source(), path: sink(), error },
            Self::RefusedSource(reason) => Error::Refused { path: source(), reason },
            Self::Refused(reason) => Error::Refused { path: sink(), reason },
            Self::IntoItself(path, into) => {
                Error::Refused { path, reason: Refusal::IntoItself(into) }
            }
            Self::Differ => Error::DataDiffer { path: sink() },
            Self::LeftDiffering => Error::LeftDiffering { path: sink() },
            Self::Deferred => Error::Refused { path: sink(), reason: Refusal::OverDirectory },
            Self::Cancelled => Error::Usage(Cancelled.to_string()),
        }
    }

    /// Converts the failure to an error with this path.
    pub fn on(self, path: &Path) -> Error {
        self.at(|| path.to_owned(), || path.to_owned())
    }

    /// Returns `true` if bytes that were written before may be lost.
    pub fn loses_written_bytes(&self) -> bool {
        match self {
            Self::Sink(call, ..) => loses_written_bytes(call),
            Self::Moved(error) => loses_written_bytes(error.call),
            _ => false,
        }
    }

    /// Returns `true` if a later run may resume from the bytes written so far.
    pub fn may_be_resumed(&self) -> bool {
        let are_bytes_gone = self.loses_written_bytes();
        let is_refused = matches!(
            self,
            Self::Differ | Self::Refused(_) | Self::RefusedSource(_) | Self::IntoItself(..)
        );
        !are_bytes_gone && !is_refused
    }

    /// Returns `true` if the process or the machine ran out of descriptors. A retry may succeed.
    pub fn is_for_descriptors(&self) -> bool {
        let errno = match self {
            Self::Source(_, errno) | Self::Sink(_, errno, _) => *errno,
            Self::Moved(error) => error.errno,
            _ => return false,
        };
        matches!(errno, Errno::MFILE | Errno::NFILE)
    }

    /// Returns `true` if every further write to the same file system would fail too.
    pub fn ends_the_run(&self) -> bool {
        let errno = match self {
            Self::Sink(_, errno, _) => *errno,
            Self::Moved(error) if error.side != Side::Source => error.errno,
            _ => return false,
        };
        cannot_take_more(errno)
    }
}

/// Returns `true` for an errno with which every further write to the same file system would fail too.
pub(crate) fn cannot_take_more(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS)
}

/// Returns `true` if hard links are unsupported by the file system, blocked by a system call filter, or exhausted
/// (`EMLINK`).
pub(crate) fn has_no_links(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK | Errno::XDEV
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_path_call_errno_and_how_far() {
        let path = || PathBuf::from("/a/b");
        let text = CopyFailure::Sink("write", Errno::NOSPC, 42).at(path, path).to_string();
        assert_eq!(
            text,
            "cannot write '/a/b' after 42 bytes: no space left on device (write: ENOSPC)"
        );
        let text = CopyFailure::Source("openat", Errno::ACCESS).at(path, path).to_string();
        assert_eq!(text, "cannot open '/a/b': permission denied (openat: EACCES)");
    }

    #[test]
    fn only_a_full_destination_ends_the_run() {
        assert!(CopyFailure::Sink("write", Errno::NOSPC, 0).ends_the_run());
        assert!(!CopyFailure::Source("read", Errno::NOSPC).ends_the_run());
        assert!(!CopyFailure::Sink("openat", Errno::ACCESS, 0).ends_the_run());
    }
}
