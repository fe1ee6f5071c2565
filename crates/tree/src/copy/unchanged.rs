//! The fast path of a sync, for a file that has an equal copy.

use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::os::fd::AsFd;

use crate::{
    copy::{compared::of_entry, copy_entry::CopyEntry, durable::FileSync, worker::CopyWorker},
    error::Attempt,
    identity::{kind, size},
};

/// Returns `true` if a regular file has an equal copy, and counts it. Opens neither file. Returns `false` also for
/// files that need a closer check.
pub(crate) fn is_unchanged(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<bool> {
    let run = worker.run;
    let options = run.options;
    if options.sync.is_none()
        || options.compares_bytes()
        || options.verify.is_some()
        || entry.directory.is_staged
        || entry.directory.is_fresh
        || FileSync::is_for_kept(options, entry.directory, false)
    {
        return Ok(false);
    }
    let Some(dir) = entry.directory.open()? else { return Ok(false) };
    let source = entry.stat(options.follows(entry.named_by_caller()));
    let there = statat(&dir, entry.name, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(mut source), Ok(there)) = (source, there) else { return Ok(false) };
    options.given.apply(&mut source);
    let is_file = |stat: &Stat| kind(stat) == FileType::RegularFile;
    if !is_file(&source)
        || !is_file(&there)
        || options.links_names(entry.named_by_caller(), source.st_nlink)
        || of_entry(run, entry, dir.as_fd(), &source, &there)?.any()
    {
        return Ok(false);
    }
    run.expect_not_listed_over(&source, || entry.source_path());
    worker.tally.sync.unchanged += 1;
    worker.tally.skipped += 1;
    worker.list_file(entry);
    worker.take_up(entry, 0);
    worker.settle(size(&source));
    Ok(true)
}
