//! Creates links to source files instead of copies (`cp -l`, `cp -s`).

use rustix::fs::{AtFlags, CWD, Stat, statat};
use std::{
    ffi::CString,
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use crate::{
    Becomes, Refusal, Skip,
    copy::{
        copy_entry::CopyEntry,
        dest::{conflict::resolve_conflict, existing::DestinationVerdict},
        entry::node::copy_node,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure},
    fs::special::NewEntry,
    identity::Id,
};

/// Links to a source that is not a directory. If `follow` is `true`, links to the target of a symbolic link.
pub(crate) fn link_to_source(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    follow: bool,
) -> Attempt<()> {
    let (from, stat) = (entry.from.open()?, entry.stat(follow)?);
    worker.run.expect_not_listed_over(&stat, || entry.source_path());
    if worker.run.options.becomes == Becomes::HardLink {
        let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let new = NewEntry::HardLink { dir: from.as_fd(), name: entry.source, flags };
        return copy_node(worker, entry, &stat, &new);
    }
    let target = entry.source_path();
    if target.is_relative() && !is_current(entry) {
        // As in `cp`, an existing file that is kept gets no link.
        return match reason_to_leave(worker, entry, &stat) {
            Some(reason) => {
                worker.skip(entry, reason);
                Ok(())
            }
            None => Err(CopyFailure::Refused(Refusal::RelativeLink)),
        };
    }
    // `CString::new` cannot fail, because the path consists of names without NUL.
    let target = CString::new(target.as_os_str().as_bytes()).unwrap_or_default();
    copy_node(worker, entry, &stat, &NewEntry::Symlink(&target))
}

/// Returns why an existing destination is kept: by `-n`, `-u` or an answer to `-i`.
fn reason_to_leave(worker: &CopyWorker<'_>, entry: &CopyEntry<'_>, source: &Stat) -> Option<Skip> {
    let dir = entry.directory.open().ok().flatten().filter(|_| !entry.directory.is_fresh)?;
    match resolve_conflict(worker.run, entry, dir.as_fd(), source) {
        Ok(DestinationVerdict::Skip(reason, _)) => Some(reason),
        _ => None,
    }
}

/// Returns `true` if the destination is the current directory, where the relative path of the link is valid.
fn is_current(entry: &CopyEntry<'_>) -> bool {
    let current = statat(CWD, c".", AtFlags::empty());
    current.is_ok_and(|current| Id::of(&current) == entry.directory.own)
}
