//! Under which name a file is written until it is whole.

use rustix::fs::{FileType, Stat};
use thalweg_sys::Errno;

use crate::{
    Backup, CopyOptions,
    copy::{dest::conflict::Existing, name_at::has_no_links},
    error::Failure,
    identity::kind,
};

/// Under which name a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteTarget {
    /// Its own.
    Own,
    /// None, until it is linked.
    Nameless,
    /// That of an unfinished file.
    Part,
    /// It is there already and written into.
    Existing,
}

/// Returns `true` if a copy that failed may be written into the existing file instead of replacing it.
pub(crate) fn can_be_written_into(
    options: &CopyOptions,
    existing: &Existing,
    source: &Stat,
    failure: &Failure,
) -> bool {
    let is_refused = match failure {
        Failure::Sink("openat", errno, _) => cannot_be_made(*errno),
        // A pipe that was read cannot be read again.
        Failure::Sink("renameat2", errno, _) if kind(source) == FileType::RegularFile => {
            cannot_be_replaced(*errno)
        }
        _ => false,
    };
    // A backup would have to be made beside it too.
    is_refused
        && options.backup == Backup::None
        && !existing.is_written_into(options)
        && !existing.is_taken_away()
}

/// Whether a folder takes no new file: no right to write it, mounted read-only, or one of `/proc`
/// or `/sys`. The file that is to be replaced there may be written all the same.
fn cannot_be_made(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::OPNOTSUPP | Errno::NOSYS
    )
}

/// Whether a file does not give up its name: another user's in a sticky folder, one that something
/// is mounted on, as containers do with /etc/hosts, or any where a filter lets no file be renamed.
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

/// Whether a file without a name cannot get one here: older kernels go by /proc, and it may be
/// missing.
pub(crate) fn cannot_be_named(failure: &Failure) -> bool {
    let errnos = [Errno::NOENT, Errno::ACCESS];
    matches!(failure, Failure::Sink("linkat", errno, _) if errnos.contains(errno) || has_no_links(*errno))
}
