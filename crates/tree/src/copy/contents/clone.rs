//! Whole files that become clones: one call, so that nothing has to be kept for a later run.

use rustix::fs::{FileType, Stat, fstat};
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
        plans::{contest::Planned, is_clone},
        worker::Worker,
    },
    identity::{Id, kind, size},
};

/// A file is to be a clone.
pub(crate) enum Cloning {
    /// Or an error.
    Must,
    /// Or, if the kernel refuses, a copy by the rest of this plan.
    May(Planned),
}

/// Whether a large file that is to be new in `dir` is cloned into a file of no name: that needs
/// neither a part nor its lock nor a journal.
pub(crate) fn cloning(
    worker: &Worker<'_>,
    dir: BorrowedFd<'_>,
    (source, stat): (&OwnedFd, &Stat),
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
        // What was asked for by name is to say itself why it cannot.
        When::Auto if options.sparse != When::Always && options.request.only.is_none() => {
            plan_of_clone(worker, dir, (source, stat)).map(Cloning::May)
        }
        When::Auto | When::Never => None,
    }
}

/// The plan by which a new file in `dir` is to be a clone, if its plan begins with that.
fn plan_of_clone(
    worker: &Worker<'_>,
    dir: BorrowedFd<'_>,
    (source, stat): (&OwnedFd, &Stat),
) -> Option<Planned> {
    let options = worker.run.options;
    let own = fstat(dir).ok()?;
    let facts = || {
        let source = End { fd: source.as_fd(), kind: Kind::File, at: Some(0) };
        let fs = filesystem(dir).ok();
        let sink = EndFacts { kind: Kind::File, fs, addressed: true, ..EndFacts::MEMORY };
        Facts { source: EndFacts::of(&source), sink, len: None, needs: options.needs }
    };
    let pair = worker.shared.pairs.of((stat.st_dev, own.st_dev), facts);
    if pair.is_known_without_clones() {
        // The driver asks for one all the same, in the file that is to get the bytes: one call.
        return None;
    }
    let plan = pair.plan(options, options.needs, Some(size(stat)));
    let first = plan.ladder().first().map(|(mechanism, _)| mechanism.info().name);
    let planned = Planned { plan: Arc::new(plan), pair: Some(pair) };
    first.is_some_and(is_clone).then_some(planned)
}

/// Takes down that the first mechanism of a plan could not clone.
pub(crate) fn was_no_clone(worker: &mut Worker<'_>, errno: Errno, planned: &Planned) {
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

/// Makes `sink` a clone of the whole source.
pub(crate) fn clone_whole(
    worker: &mut Worker<'_>,
    (source, stat): (&OwnedFd, &Stat),
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
