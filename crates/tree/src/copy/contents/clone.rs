//! Clones whole files. A clone is one call, so there is no state for a later run to resume.

use rustix::fs::{FileType, fstat};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_core::{
    End, EndFacts, Facts, Kind, StepDown, Tuning,
    error::{errno_name, symbol},
    mechanisms::{LAST_RESORT, cloner},
};
use thalweg_sys::{Errno, host::filesystem};

use crate::{
    When,
    copy::{
        contents::run_plan::record_fallback,
        copy_entry::SourceFile,
        plans::{contest::PlannedMethod, is_clone, pair::Devices},
        worker::CopyWorker,
    },
    identity::{Id, kind, size},
};

/// The consequence if a file cannot be cloned.
pub(crate) enum Cloning {
    /// The copy fails if the kernel refuses to clone the file.
    Must,
    /// The remaining mechanisms of this plan copy the file.
    May(PlannedMethod),
}

/// Returns how to clone a new large file into an `O_TMPFILE` file in `dir`, which needs no partial file, lock or
/// journal. Returns `None` if the file is not to be cloned.
pub(crate) fn cloning(
    worker: &CopyWorker<'_>,
    dir: BorrowedFd<'_>,
    SourceFile { fd: source, stat }: SourceFile<'_>,
) -> Option<Cloning> {
    let options = worker.run.options;
    let is_wanted = kind(stat) == FileType::RegularFile
        && size(stat) > 0
        && !options.resume
        && !options.inplace
        && !worker.no_tmpfile
        && worker.uncloneable != Some(Id::of(stat));
    match options.reflink {
        _ if !is_wanted => None,
        When::Always => Some(Cloning::Must),
        // If the caller selected one mechanism by name, that mechanism must report its own error.
        When::Auto if options.sparse != When::Always && options.request.only.is_none() => {
            plan_of_clone(worker, dir, SourceFile { fd: source, stat }).map(Cloning::May)
        }
        When::Auto | When::Never => None,
    }
}

/// Returns the plan for a new file in `dir` if its first mechanism is a clone.
pub(crate) fn plan_of_clone(
    worker: &CopyWorker<'_>,
    dir: BorrowedFd<'_>,
    SourceFile { fd: source, stat }: SourceFile<'_>,
) -> Option<PlannedMethod> {
    let options = worker.run.options;
    let own = fstat(dir).ok()?;
    let facts = || {
        let source = End { fd: source.as_fd(), kind: Kind::File, at: Some(0) };
        let fs = filesystem(dir).ok();
        let sink = EndFacts { kind: Kind::File, fs, addressed: true, ..EndFacts::MEMORY };
        Facts { source: EndFacts::of(&source), sink, len: None, needs: options.needs }
    };
    let pair = worker.shared.pairs.of(Devices { source: stat.st_dev, sink: own.st_dev }, facts);
    if pair.is_known_without_clones() {
        // Clones are not expected to work on this file system. The driver still tries one clone, when it copies into an
        // ordinary new file. That attempt costs one call.
        return None;
    }
    let plan = pair.plan(options, options.needs, Some(size(stat)));
    let first = plan.ladder().first().map(|(mechanism, _)| mechanism.info().name);
    let planned = PlannedMethod { plan: Arc::new(plan), pair: Some(pair) };
    first.is_some_and(is_clone).then_some(planned)
}

/// Records that the clone at the start of the plan failed.
pub(crate) fn was_no_clone(worker: &mut CopyWorker<'_>, errno: Errno, planned: &PlannedMethod) {
    let ladder = planned.plan.ladder();
    let mut rungs = ladder.iter().map(|(mechanism, _)| mechanism.info().name);
    let Some(from) = rungs.next() else { return };
    let step = StepDown {
        from,
        to: rungs.next().unwrap_or(LAST_RESORT.info().name),
        at: 0,
        call: "FICLONE",
        errno: symbol(errno),
        reason: errno_name(errno),
    };
    record_fallback(worker, step, planned);
}

/// Clones the whole source into `sink`.
pub(crate) fn clone_whole(
    worker: &mut CopyWorker<'_>,
    SourceFile { fd: source, stat }: SourceFile<'_>,
    sink: &OwnedFd,
) -> Result<(), Errno> {
    thalweg_sys::copy::clone_file(source, sink)?;
    let bytes = size(stat);
    if let Some(cloner) = cloner() {
        worker.tally.book(cloner.info().name, &Tuning::default(), bytes);
    }
    worker.tally.cloned += bytes;
    worker.moved(bytes);
    Ok(())
}
