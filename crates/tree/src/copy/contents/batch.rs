//! Publishes small files of a tree in batches if they must be synced before they get their names.
//!
//! A separate sync of each file would flush the disk once per file. Instead, the new files keep their temporary names
//! until one syncfs(2) covers all of them. Until then, the old files keep their names.

use rustix::fs::Stat;
use std::os::fd::AsFd;
use thalweg_core::atomic_file::{CallFailed, Parked};

use crate::{
    Skip,
    copy::{
        copy_entry::CopyEntry,
        dest::{
            existing::{Existing, FileDestination},
            publish::{DestinationFile, PublishOutcome, publish},
        },
        directory::Directory,
        durable::FileSync,
        name_at::NameAt,
        task::WaitingFile,
        whole_sync::WholeSync,
        worker::CopyWorker,
    },
    error::Attempt,
    identity::size,
};

/// Queues a small file, which gets its name after the next common sync. Returns `false` if the file cannot wait.
pub(crate) fn let_wait(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    sink: &mut DestinationFile<'_>,
    destination: &FileDestination,
    sync: FileSync,
) -> bool {
    // The file would get its name in `entry.directory`, and not in the directory that a symbolic link leads to.
    if destination.is_elsewhere() {
        return false;
    }
    // Other names are linked to the final name of a file with hard links, so the file must get that name immediately.
    let has_links = worker.run.options.links_names(false, stat.st_nlink);
    let may_wait = sync != FileSync::Nothing
        && worker.run.most_waiting > 0
        && entry.directory.is_synced_whole
        && !entry.named_by_caller()
        && !worker.is_by_itself
        && !has_links;
    let there = destination.existing.as_ref().and_then(Existing::in_place);
    let DestinationFile::Hidden(file) = sink else { return false };
    let Some(file) = may_wait.then(|| file.park()).flatten() else { return false };
    worker.waiting.push(WaitingFile { entry: entry.queued(), stat: *stat, there, file, sync });
    if worker.waiting.len() >= worker.run.most_waiting {
        name_waiting(worker);
    }
    true
}

/// Syncs and publishes the files that wait. This is also done if the copy is being stopped, because these files are
/// complete. Files that cannot be published are added to [`CopyWorker::to_repeat`].
pub(crate) fn name_waiting(worker: &mut CopyWorker<'_>) {
    let waiting = std::mem::take(&mut worker.waiting);
    let is_synced = WholeSync::sync_batch(worker.run.whole.as_ref(), waiting.len());
    for WaitingFile { entry: queued, stat, there, file, sync } in waiting {
        let entry = queued.entry();
        let sync = is_synced.map(|is_synced| if is_synced { FileSync::Nothing } else { sync });
        match name_one(worker, &entry, &stat, file, there.as_ref(), sync) {
            Ok(true) => {}
            Ok(false) => {
                worker.to_repeat.push(queued);
                continue;
            }
            Err(failure) => worker.fail(&entry, failure),
        }
        Directory::done(worker.run, queued.directory);
    }
}

/// Syncs and publishes one file, unless the common sync failed. Returns `false` if the file could not be published.
fn name_one(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    file: Parked,
    there: Option<&Existing>,
    sync: Result<FileSync, CallFailed>,
) -> Attempt<bool> {
    let Some(dir) = entry.directory.open()? else { return Ok(true) };
    let mut sink = DestinationFile::Hidden(file.unpark(dir.as_fd(), entry.name));
    sync?.perform(sink.fd(), size(stat), worker.run.whole.as_ref())?;
    let name_at = NameAt { dir: dir.as_fd(), name: entry.name };
    match publish(worker.run.options, entry, stat, &mut sink, name_at, there) {
        Ok(PublishOutcome::Named(backup)) => {
            worker.report_removed(entry, there, stat);
            worker.note_copied(entry, stat, there);
            worker.count_file(entry, backup.as_deref());
        }
        Ok(PublishOutcome::Skipped) => {
            worker.skip(entry, Skip::Exists);
            worker.list_file(entry);
        }
        Err(_) => return Ok(false),
    }
    Ok(true)
}
