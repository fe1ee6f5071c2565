//! Copies FIFOs, sockets and device nodes by creating new ones.

use rustix::fs::{AtFlags, FileType, Mode, statat};

use crate::{
    copy::{copy_entry::CopyEntry, entry::symlink::make_node, worker::CopyWorker},
    error::{Attempt, at_source},
    fs::special::NewEntry,
};

/// Creates a special file like the source.
pub(crate) fn copy_special(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    kind: FileType,
) -> Attempt<()> {
    let follow = worker.run.options.follows(entry.named_by_caller());
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = statat(entry.from.open()?, entry.source, flags);
    let mut stat = stat.map_err(at_source("newfstatat"))?;
    worker.run.options.given.apply(&mut stat);
    let mode = worker.run.options.new_mode.unwrap_or(stat.st_mode);
    let mode = Mode::from_raw_mode(mode & 0o777);
    let new = NewEntry::Special { kind, mode, device: stat.st_rdev };
    if make_node(worker, entry, &stat, &new)? {
        worker.tally.links = worker.tally.links.saturating_sub(1);
        worker.tally.specials += 1;
    }
    Ok(())
}
