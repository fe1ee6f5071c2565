//! Compares a file that the copy would skip with its source. `--verify` requires this, because the copy guarantees the
//! contents. `--resume` requires it if there is no evidence that the data of an earlier run is intact.

use rustix::fs::{FileType, fstat, readlinkat};
use std::os::fd::{AsFd, BorrowedFd};

use crate::{
    Event, Hash, Skip,
    copy::{
        compared::of_entry,
        contents::{
            resume::equal_prefix,
            verify::{ReadEnds, SinkEnd, are_equal},
        },
        copy_entry::{CopyEntry, SourceFile},
        dest::{conflict::may_be_replaced, existing::Existing},
        name_at::{CopyPlacement, NameAt},
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    identity::{Id, changed, kind, size},
    read::{drop_cached, open},
};

/// Compares a file that would be skipped with its source, if the caller requested it or the data of the file may not
/// be intact. If a file that an earlier run seemed to have finished differs, it is replaced. If a file that the caller
/// wants to keep differs, it is kept and the difference is an error.
pub(crate) fn is_to_be_replaced(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    reason: Skip,
    SourceFile { fd: source, stat }: SourceFile<'_>,
    dir: BorrowedFd<'_>,
    there: &Existing,
) -> Attempt<bool> {
    let is_doubted = reason == Skip::Done && there.is_doubted;
    let hash = worker.run.options.verify;
    if hash.is_none() && !is_doubted {
        return Ok(false);
    }
    if kind(stat) != FileType::RegularFile {
        worker.tally.verified.not_read += 1;
        return Ok(false);
    }
    let here = NameAt { dir, name: entry.name };
    if is_equal_to_what_is_there(
        worker,
        SourceFile { fd: source, stat },
        there.name_at(here),
        hash,
    )? {
        return Ok(false);
    }
    if changed(stat, &fstat(source).map_err(at_source("fstat"))?) {
        worker.tally.changed += 1;
        worker.run.events.event(&Event::Changed { source: &entry.source_path() });
        return Ok(false);
    }
    if reason != Skip::Done {
        worker.fail(entry, CopyFailure::LeftDiffering);
        return Ok(false);
    }
    may_be_replaced(worker.run, here, there)?;
    if !worker.run.options.compares_bytes() && !worker.run.options.dry_run {
        report_again(worker, entry);
    }
    Ok(true)
}

/// Returns `true` if an equal file is replaced because its attributes differ and it has other names. A change in place
/// would also change the file under these names, which may be outside of the destination.
pub(crate) fn is_to_be_renewed(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    reason: Skip,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    there: &mut Existing,
) -> Attempt<bool> {
    let options = worker.run.options;
    let is_updated = reason == Skip::Done || options.sync.is_some();
    if !is_updated || !there.has_other_names(options) {
        return Ok(false);
    }
    let here = NameAt { dir, name: entry.name };
    let NameAt { dir, name } = there.name_at(here);
    let differs = of_entry(worker.run, &CopyEntry { name, ..*entry }, dir, stat, &there.stat)?;
    if !differs.any() {
        return Ok(false);
    }
    may_be_replaced(worker.run, here, there)?;
    // A file with more names than its source is reported like any other replaced file.
    if there.stat.st_nlink <= stat.st_nlink {
        worker.shared.note_renewed(Id::of(stat), Id::of(&there.stat));
        there.renewed = Some(differs);
    }
    Ok(true)
}

/// Compares an existing file with its source by this hash. `None`: byte by byte, up to the first difference.
fn is_equal_to_what_is_there(
    worker: &mut CopyWorker<'_>,
    SourceFile { fd: source, stat }: SourceFile<'_>,
    name_at: NameAt<'_>,
    hash: Option<Hash>,
) -> Attempt<bool> {
    let copy = open(name_at.dir, name_at.name, false).map_err(at_sink("openat"))?;
    let own = fstat(&copy).map_err(at_sink("fstat"))?;
    if kind(&own) != FileType::RegularFile {
        return Ok(false);
    }
    let ends = ReadEnds { source: source.as_fd(), copy: copy.as_fd() };
    if let Some(hash) = hash {
        return is_equal(worker, ends, SinkEnd::Own, hash);
    }
    worker.make_room();
    let run = worker.run;
    let len = size(stat);
    let equal = equal_prefix(ends, len, &mut worker.buffer, || run.go_on())?;
    Ok(equal == len && size(&own) == len)
}

/// Compares a copy with its source by hash, and counts the files if they are equal.
pub(crate) fn is_equal(
    worker: &mut CopyWorker<'_>,
    ends: ReadEnds<'_>,
    end: SinkEnd,
    hash: Hash,
) -> Attempt<bool> {
    worker.make_room();
    let run = worker.run;
    let is_in_memory =
        run.options.verify_device && !drop_cached(ends.copy).map_err(at_sink("fdatasync"))?;
    let is_equal = are_equal(ends, end, hash, &mut worker.buffer, || run.go_on())?;
    if is_equal {
        let stat = fstat(ends.source).map_err(at_source("fstat"))?;
        worker.tally.verified.same += 1;
        worker.tally.verified.bytes += size(&stat);
        worker.tally.verified.from_memory += u64::from(is_in_memory);
    }
    Ok(is_equal)
}

/// Reports a copy that seemed to be complete but was not.
pub(crate) fn report_again(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) {
    worker.tally.verified.again += 1;
    worker.run.events.event(&Event::Again { destination: &entry.destination_path() });
}

/// Compares a skipped symbolic link or special file with its source.
pub(crate) fn check_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    CopyPlacement { dir, stat }: CopyPlacement<'_>,
    there: &Existing,
) -> Attempt<()> {
    if worker.run.options.verify.is_none() || worker.run.options.dry_run {
        return Ok(());
    }
    let is_alike = kind(stat) == kind(&there.stat) && stat.st_rdev == there.stat.st_rdev;
    let is_same = match kind(stat) {
        FileType::Symlink if is_alike => {
            let ours = readlinkat(dir, entry.name, Vec::new()).map_err(at_sink("readlinkat"))?;
            let theirs = readlinkat(entry.from.open()?, entry.source, Vec::new());
            ours == theirs.map_err(at_source("readlinkat"))?
        }
        _ => is_alike,
    };
    if is_same { Ok(()) } else { Err(CopyFailure::LeftDiffering) }
}
