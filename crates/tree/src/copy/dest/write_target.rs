//! The name under which a file is written until it is complete.

use rustix::fs::{FileType, Stat};
use thalweg_sys::Errno;

use crate::{
    Backup, CopyOptions,
    copy::dest::existing::Existing,
    error::{CopyFailure, has_no_links},
    identity::kind,
};

/// The name under which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    /// The final name of the file.
    Own,
    /// No name until it is linked (`O_TMPFILE`).
    Nameless,
    /// The name of a partial file.
    Part,
    /// The name of an existing file that is written into.
    Existing,
}

/// Returns `true` if, after this failure, another attempt may write into the existing file instead of replacing it.
pub(crate) fn can_be_written_into(
    options: &CopyOptions,
    existing: &Existing,
    source: &Stat,
    failure: &CopyFailure,
) -> bool {
    let is_refused = match failure {
        CopyFailure::Sink("openat", errno, _) => cannot_be_made(*errno),
        // After a failed rename, all bytes must be moved again. Only a regular file can be read a second time.
        CopyFailure::Sink("renameat2", errno, _) if kind(source) == FileType::RegularFile => {
            cannot_be_replaced(*errno)
        }
        _ => false,
    };
    // With a backup, the existing file must keep its contents, but its directory accepts no new name for them.
    is_refused
        && options.backup == Backup::None
        && !existing.is_written_into(options)
        && !existing.is_taken_away()
}

/// Returns `true` if the errno means that a directory accepts no new file, although an existing file in it may still be
/// writable. The directory may lack write permission, be mounted read-only, or be part of `/proc` or `/sys`.
fn cannot_be_made(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::OPNOTSUPP | Errno::NOSYS
    )
}

/// Returns `true` if the errno means that a rename cannot replace a file. Examples are another user's file in a sticky
/// directory, a mount point (such as /etc/hosts in a container), and a system call filter that denies renames.
fn cannot_be_replaced(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS
            | Errno::PERM
            | Errno::BUSY
            | Errno::ROFS
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
    )
}

/// Returns `true` if an unnamed file cannot be linked here. Older kernels need /proc for that, which may be missing.
pub(crate) fn cannot_be_named(failure: &CopyFailure) -> bool {
    let errnos = [Errno::NOENT, Errno::ACCESS];
    matches!(failure, CopyFailure::Sink("linkat", errno, _) if errnos.contains(errno) || has_no_links(*errno))
}
