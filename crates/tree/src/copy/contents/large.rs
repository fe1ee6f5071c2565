//! Transfers files that do not fit one buffer. The plan is based on facts about both endpoints, and the driver
//! moves the bytes.

use rustix::fs::{FileType, Stat, fstat};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_core::{
    End, Facts, Guarantees, Kind, Plan, Sink, Source, Transfer, Tuning, mechanisms::LAST_RESORT,
};
use thalweg_sys::{Errno, io};

use crate::{
    Refusal, When,
    copy::{
        contents::{
            clone::{clone_whole, was_no_clone},
            job::ContentsJob,
            resume::prefix,
            run_plan::run_plan,
            small::write_single,
            sparse::{next_extent, seems_sparse, write_but_zeros},
        },
        copy_entry::SourceFile,
        plans::{
            contest::PlannedMethod,
            is_clone,
            pair::{Devices, request},
        },
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    identity::{kind, size},
    journal::JournalKeeper,
    read::announce_whole,
};

/// Moves the bytes of a file. The first `head` bytes are already in the buffer.
pub(crate) fn move_large(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    head: usize,
    mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<()> {
    let options = worker.run.options;
    announce_whole(job.source);
    let mut from = adopt(worker, job, keeper.as_deref_mut(), 1)?;
    if options.reflink == When::Always {
        let cloned = clone_whole(worker, SourceFile { fd: job.source, stat: job.stat }, job.sink);
        return cloned.map_err(|errno| CopyFailure::Sink("FICLONE", errno, 0));
    }
    if options.sparse == When::Always && job.takes_holes {
        return move_without_zeros(worker, job, from, keeper);
    }
    if head > from as usize {
        // The source reported a wrong size. It may not be readable twice, so the bytes in the buffer are written.
        write_single(worker, job.sink, head)?;
        from = head as u64;
    }
    if head > 0 {
        return move_stretch(worker, job, from, None, keeper).map(drop);
    }
    move_rest(worker, job, from, keeper)
}

/// Keeps the start of an earlier run's partial file as far as it is valid, rounded down to a multiple of `unit` bytes.
/// Truncates the rest and returns the kept length.
pub(crate) fn adopt(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
    unit: u64,
) -> Attempt<u64> {
    let Some(keeper) = keeper.filter(|_| job.adopted) else { return Ok(0) };
    worker.make_room();
    let earlier = keeper.earlier();
    let run = worker.run;
    let valid = prefix(job, earlier, &mut worker.buffer, || run.go_on())?;
    let from = valid - valid % unit;
    // The old journal may describe another source, or more bytes than the partial file still has.
    keeper.forget().map_err(at_sink("unlinkat"))?;
    io::ftruncate(job.sink, from).map_err(at_sink("ftruncate"))?;
    keeper.note(from);
    keeper.write();
    worker.tally.resumed += from;
    worker.tally.continued += from;
    Ok(from)
}

/// Moves the data from `from` to the end of the source, without the holes of the source.
pub(crate) fn move_rest(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    from: u64,
    keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<()> {
    if worker.run.options.sparse == When::Auto && job.takes_holes && seems_sparse(job.stat) {
        return move_extents(worker, job, from, keeper);
    }
    move_stretch(worker, job, from, None, keeper).map(drop)
}

/// Moves the data ranges of a file and skips its holes.
fn move_extents(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    mut at: u64,
    mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<()> {
    let end = size(job.stat);
    if at == 0 && clones_first(worker, job)? {
        return Ok(());
    }
    while let Some((from, to)) = next_extent(job.source.as_fd(), at, end)? {
        let len = to - from;
        let moved = move_stretch(worker, job, from, Some(len), keeper.as_deref_mut())?;
        if moved < len {
            // The source was truncated during the copy. The rest of this range is missing data and not a hole.
            return Ok(());
        }
        at = to;
    }
    if at < end {
        // The size is set only after the data is written. After a power failure the disk may nevertheless have the size
        // without the data. `WriteEvidence` takes this into account.
        io::ftruncate(job.sink, end).map_err(at_sink("ftruncate"))?;
    }
    // The source may have more bytes than it reported, so one more read checks for bytes after the end.
    let mut byte = [0];
    match io::pread(job.source, &mut byte, end) {
        Ok(0) => Ok(()),
        Ok(_) | Err(Errno::INTR) => move_stretch(worker, job, end, None, keeper).map(drop),
        Err(errno) => Err(CopyFailure::Source("pread", errno)),
    }
}

/// Moves the data in a range of a file to the same offset of the sink, without the holes. Other processes may write
/// the sink at the same time. Moves less if the source became shorter.
pub(crate) fn move_piece(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    piece: Range<u64>,
) -> Attempt<()> {
    let keeps_holes = worker.run.options.sparse == When::Auto && seems_sparse(job.stat);
    let mut at = piece.start;
    while at < piece.end {
        let extent = if keeps_holes {
            next_extent(job.source.as_fd(), at, piece.end)?
        } else {
            Some((at, piece.end))
        };
        let Some((from, to)) = extent else { break };
        let len = to - from;
        if move_stretch(worker, job, from, Some(len), None)? < len {
            break;
        }
        at = to;
    }
    Ok(())
}

/// Moves one range by the best mechanism. `None` as `len` means up to the end of the file, which may move during the
/// copy. Returns the number of bytes moved.
fn move_stretch(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    from: u64,
    len: Option<u64>,
    keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<u64> {
    let needs = Guarantees { durable: false, ..worker.run.options.needs };
    let source = Source::Fd(end_of(job.source, kind(job.stat), from).map_err(at_source("fstat"))?);
    let own = fstat(job.sink).map_err(at_sink("fstat"))?;
    let sink = Sink::Fd(end_of(job.sink, kind(&own), from).map_err(at_sink("fstat"))?);
    let mut transfer = Transfer { source, sink, len, needs };
    let planned = plan_transfer(worker, job, &own, &transfer, from)?;
    run_plan(worker, &mut transfer, &planned, from, keeper)
}

fn plan_transfer(
    worker: &CopyWorker<'_>,
    job: &ContentsJob<'_>,
    own: &Stat,
    transfer: &Transfer<'_>,
    from: u64,
) -> Attempt<PlannedMethod> {
    let options = worker.run.options;
    let are_files = kind(job.stat) == FileType::RegularFile && kind(own) == FileType::RegularFile;
    let (plan, pair) = if are_files {
        let devices = Devices { source: job.stat.st_dev, sink: own.st_dev };
        let pair = worker.shared.pairs.of(devices, || Facts::of(transfer));
        let left = size(job.stat).saturating_sub(from);
        let len = transfer.len.or(Some(left).filter(|left| *left > 0));
        (pair.plan(options, transfer.needs, len), Some(pair))
    } else {
        let facts = Facts::of(transfer);
        (Plan::make(&facts, &request(options), options.profile.as_deref()), None)
    };
    match plan.impossible {
        Some(reason) => Err(CopyFailure::RefusedSource(Refusal::NoMechanism(reason))),
        None => Ok(PlannedMethod { plan: Arc::new(plan), pair }),
    }
}

/// Clones a file with holes as a whole if the plan begins with a clone. One clone per range would repeat the work.
/// Returns `true` if the file was cloned.
fn clones_first(worker: &mut CopyWorker<'_>, job: &ContentsJob<'_>) -> Attempt<bool> {
    let transfer = Transfer::between(job.source, job.sink).map_err(at_source("fstat"))?;
    let own = fstat(job.sink).map_err(at_sink("fstat"))?;
    let planned = plan_transfer(worker, job, &own, &transfer, 0)?;
    let ladder = planned.plan.ladder();
    let mut rungs = ladder.iter().map(|(mechanism, _)| mechanism.info().name);
    if !rungs.next().is_some_and(is_clone) {
        return Ok(false);
    }
    let Err(errno) = clone_whole(worker, SourceFile { fd: job.source, stat: job.stat }, job.sink)
    else {
        return Ok(true);
    };
    was_no_clone(worker, errno, &planned);
    Ok(false)
}

/// Reads the whole source and writes all blocks except those that contain only zeros.
fn move_without_zeros(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    mut at: u64,
    mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<()> {
    worker.make_room();
    let begin = at;
    let source = end_of(job.source, kind(job.stat), at);
    // A pipe cannot be read at an offset.
    let mut source = source.map_err(at_source("fstat"))?;
    loop {
        match source.read(&mut worker.buffer) {
            Ok(0) => break,
            Ok(got) => {
                let bytes = worker.buffer.get(..got).unwrap_or_default();
                write_but_zeros(job.sink.as_fd(), bytes, at)?;
                at += got as u64;
                worker.moved(got as u64);
                if let Some(keeper) = keeper.as_deref_mut() {
                    keeper.note(at);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CopyFailure::Source(source.read_call(), errno)),
        }
        worker.flush_progress_when_due();
        worker.run.go_on()?;
    }
    worker.tally.book(LAST_RESORT.info().name, &Tuning::default(), at - begin);
    io::ftruncate(job.sink, at).map_err(at_sink("ftruncate"))
}

/// Returns one end of a transfer. A regular file is read or written at offset `at`. For any other file, `End::of`
/// determines the kind of the end.
fn end_of(fd: &OwnedFd, kind: FileType, at: u64) -> Result<End<'_>, Errno> {
    let fd = fd.as_fd();
    if kind == FileType::RegularFile {
        return Ok(End { fd, kind: Kind::File, at: Some(at) });
    }
    End::of(fd)
}
