//! What can go wrong while copying a tree: which file, which call, how far.

use std::path::{Path, PathBuf};
use thalweg_core::{
    Cancelled, Side,
    atomic_file::{CallFailed, ownership::Distrust},
    failed::{Failed, loses_written_bytes, quoted},
};
use thalweg_sys::Errno;

/// The calls by which a copy gets the lists of its source.
pub(crate) const SET_ACCESS_LIST: &str = "fsetxattr system.posix_acl_access";
pub(crate) const SET_DEFAULT_LIST: &str = "fsetxattr system.posix_acl_default";

/// A file or a whole run that could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{}", Failed { what: &quoted(path), call, errno: *errno, moved: *bytes })]
    Call {
        /// The file it was about.
        path: PathBuf,
        /// The call, by its own name.
        call: &'static str,
        /// What the kernel answered.
        errno: Errno,
        /// Bytes of this file that had been moved.
        bytes: u64,
    },
    /// A mechanism failed in the middle of a file.
    #[error("{}", moving(source_path, path, error))]
    Move {
        /// The source.
        source_path: PathBuf,
        /// The destination.
        path: PathBuf,
        /// What failed and how far it had come.
        error: thalweg_core::Error,
    },
    /// It makes no sense, or would destroy something; nothing was done.
    #[error("{} {reason}", quoted(path))]
    Refused {
        /// The file it is about.
        path: PathBuf,
        /// Why not.
        reason: Refusal,
    },
    /// The copy, read again, differs from its source. It was not given its name.
    #[error("{}: the copy read back differs from its source; it was not kept", quoted(path))]
    DataDiffer {
        /// The destination.
        path: PathBuf,
    },
    /// A file that was left as it was differs from its source.
    #[error("{}: it differs from its source, and was left as it was", quoted(path))]
    LeftDiffering {
        /// The destination.
        path: PathBuf,
    },
    /// The sources, the destination and the options do not fit together.
    #[error("{0}")]
    Usage(String),
}

/// Why a file is not copied although nothing failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `-r` is missing.
    #[error("is a folder (-r to copy it)")]
    NotRecursive,
    /// Source and destination are one file.
    #[error("is the same file as the source, {}", quoted(.0))]
    SameFile(PathBuf),
    /// The destination lies inside the source.
    #[error("is a folder and cannot be copied into itself, {}", quoted(.0))]
    IntoItself(PathBuf),
    /// A followed link leads back to a directory that is being copied.
    #[error("is not copied: a followed link leads into a cycle")]
    Cycle,
    /// A directory would have to give way to something else.
    #[error("is a folder, and its source is none: not overwritten")]
    OverDirectory,
    /// Something else would have to give way to a directory.
    #[error("is no folder, and its source is one: not overwritten")]
    OverNonDirectory,
    /// Two sources of one name.
    #[error("was just created from another source: will not overwrite it")]
    JustCreated,
    /// The destination is a link to nothing.
    #[error("is a dangling symbolic link: not written through it")]
    Dangling,
    /// It is another user's in a directory that every user may write, as `fs.protected_symlinks` and
    /// `fs.protected_regular` say.
    #[error(
        "belongs to another user, in a directory that every user may write: not followed, not written into"
    )]
    Trap,
    /// A hidden name of ours is taken by something that another user may have made.
    #[error("{0}: left alone; remove it first")]
    Foreign(Distrust),
    /// The backup of the destination would be the source.
    #[error("is not overwritten: its backup would destroy the source")]
    BackupOverSource,
    /// A source has a name that this program keeps for its unfinished files.
    #[error("has a name kept for unfinished copies: not copied")]
    ReservedName,
    /// What was a file of one kind became another while the copy ran.
    #[error("was replaced by something else while it was copied")]
    Replaced,
    /// It exists, and nothing may be replaced (`--update=none-fail`).
    #[error("exists, and is not replaced")]
    NotReplaced,
    /// A relative symbolic link made elsewhere would lead elsewhere.
    #[error("a relative symbolic link can be made in the current folder only")]
    RelativeLink,
    /// The manifest would take the place of a file that it lists.
    #[error("is one of the copies: the manifest would replace it")]
    ManifestOverCopy,
    /// The manifest would take the place of a source.
    #[error("is to be copied: the manifest would replace it")]
    ManifestOverSource,
    /// A fleet makes a new tree, and this is there already.
    #[error("exists: a fleet makes a new folder")]
    NotNew,
    /// It looks like a finished copy of a fleet, but was written before this machine started: a power cut may have taken its
    /// data.
    #[error("was there before this machine started: its data may not be complete")]
    NotSince,
    /// The plan of a fleet cannot be used.
    #[error("is no plan of a fleet: {0}")]
    NoPlan(String),
    /// A worker that makes no fleet finds none.
    #[error("is not being made by a fleet, as seen from this machine")]
    NoFleet,
    /// Nobody has made the plan of a fleet.
    #[error("has no plan yet: the worker of rank 0 makes it")]
    NoPlanYet,
    /// No mechanism is left to move it.
    #[error("cannot be copied: {0}")]
    NoMechanism(String),
}

/// A mechanism's failure, by the end it was about.
fn moving(source: &Path, sink: &Path, error: &thalweg_core::Error) -> String {
    error.between(&quoted(source), &quoted(sink))
}

impl Error {
    /// The file it is about, if it is about one.
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

    /// Whether a file is copied without the access list of its source.
    pub fn is_list_refused(&self) -> bool {
        matches!(self, Self::Call { call: SET_ACCESS_LIST | SET_DEFAULT_LIST, .. })
    }

    /// Returns `true` if bytes that were written before may be gone, also bytes of other files.
    pub(crate) fn loses_written_bytes(&self) -> bool {
        match self {
            Self::Call { call, .. } => loses_written_bytes(call),
            Self::Move { error, .. } => loses_written_bytes(error.call),
            _ => false,
        }
    }

    /// What the kernel answered, if it was the kernel that said no.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::Move { error, .. } => Some(error.errno),
            _ => None,
        }
    }
}

/// A failure that does not know its paths yet: building them costs, and is done once, at the leaf.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call on the source.
    Source(&'static str, Errno),
    /// A call on the destination, after so many bytes.
    Sink(&'static str, Errno, u64),
    /// A mechanism.
    Moved(thalweg_core::Error),
    /// A refusal about the source.
    RefusedSource(Refusal),
    /// A refusal about the destination.
    Refused(Refusal),
    /// The copy differs.
    Differ,
    /// What is there differs, and stays.
    LeftDiffering,
    /// A directory that a named source becomes was met below it: that source, and what it becomes.
    IntoItself(PathBuf, PathBuf),
    /// Not a failure of this file: the run is being stopped.
    Cancelled,
}

pub(crate) type Attempt<T> = Result<T, Failure>;

/// Names the call of an errno, on the side it was made.
pub(crate) fn at_source(call: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Source(call, errno)
}

/// Names the call of an errno, on the side it was made.
pub(crate) fn at_sink(call: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Sink(call, errno, 0)
}

impl From<CallFailed> for Failure {
    fn from(failed: CallFailed) -> Self {
        Self::Sink(failed.call, failed.errno, 0)
    }
}

impl From<Cancelled> for Failure {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl Failure {
    /// The whole error, with its paths.
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
            Self::Cancelled => Error::Usage(Cancelled.to_string()),
        }
    }

    /// Whether bytes that were written before may be gone.
    pub fn loses_written_bytes(&self) -> bool {
        match self {
            Self::Sink(call, ..) => loses_written_bytes(call),
            Self::Moved(error) => loses_written_bytes(error.call),
            _ => false,
        }
    }

    /// Whether what was written so far is worth going on with.
    pub fn may_be_resumed(&self) -> bool {
        let are_bytes_gone = self.loses_written_bytes();
        let is_refused = matches!(
            self,
            Self::Differ | Self::Refused(_) | Self::RefusedSource(_) | Self::IntoItself(..)
        );
        !are_bytes_gone && !is_refused
    }

    /// Whether a descriptor was missing, of the process or of the machine: soon there may be one.
    pub fn is_for_descriptors(&self) -> bool {
        let errno = match self {
            Self::Source(_, errno) | Self::Sink(_, errno, _) => *errno,
            Self::Moved(error) => error.errno,
            _ => return false,
        };
        matches!(errno, Errno::MFILE | Errno::NFILE)
    }

    /// Whether the destination can take nothing more, so that going on would only repeat it.
    pub fn ends_the_run(&self) -> bool {
        let errno = match self {
            Self::Sink(_, errno, _) => *errno,
            Self::Moved(error) if error.side != Side::Source => error.errno,
            _ => return false,
        };
        cannot_take_more(errno)
    }
}

/// Returns `true` for an errno with which every further write to the destination would fail, too.
pub(crate) fn cannot_take_more(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_path_call_errno_and_how_far() {
        let path = || PathBuf::from("/a/b");
        let text = Failure::Sink("write", Errno::NOSPC, 42).at(path, path).to_string();
        assert_eq!(
            text,
            "cannot write '/a/b' after 42 bytes: no space left on device (write: ENOSPC)"
        );
        let text = Failure::Source("openat", Errno::ACCESS).at(path, path).to_string();
        assert_eq!(text, "cannot open '/a/b': permission denied (openat: EACCES)");
    }

    #[test]
    fn only_a_full_destination_ends_the_run() {
        assert!(Failure::Sink("write", Errno::NOSPC, 0).ends_the_run());
        assert!(!Failure::Source("read", Errno::NOSPC).ends_the_run());
        assert!(!Failure::Sink("openat", Errno::ACCESS, 0).ends_the_run());
    }
}
