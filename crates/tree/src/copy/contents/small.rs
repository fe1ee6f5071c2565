//! Copies files that fit one buffer, with one read, one write, and no avoidable system call.

use rustix::fs::{FileType, Stat};
use std::os::fd::{AsFd, OwnedFd};
use thalweg_core::{
    End, Guarantees, Kind, Sink, Source, Transfer, Tuning,
    mechanisms::{LAST_RESORT, by_name},
};
use thalweg_sys::{Errno, io};

use crate::{
    CopyOptions, When,
    copy::{
        contents::{run_plan::run_plan, sparse::seems_sparse},
        plans::{contest::PlannedMethod, is_clone},
        worker::{CopyWorker, single},
    },
    error::{Attempt, CopyFailure, at_source},
    identity::{kind, size},
};

/// Returns `true` if a file of this reported size fits the worker's buffer. Such a file is read and written as a whole.
pub(crate) fn is_small(options: &CopyOptions, stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile
        && size(stat) <= single() as u64
        && options.allows_single_write()
        && options.sparse != When::Always
        && options.reflink != When::Always
        && !(options.sparse == When::Auto && seems_sparse(stat))
}

/// Result of the first read of a small file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contents {
    /// Number of bytes in the worker's buffer.
    pub len: usize,
    /// `true` if these bytes are the whole file.
    pub is_whole: bool,
}

/// Reads a file that reports a size of `claimed` bytes. If the file has more bytes than the buffer holds, it is not
/// small. The buffer then contains its start.
pub(crate) fn read_single(
    worker: &mut CopyWorker<'_>,
    source: &OwnedFd,
    claimed: usize,
) -> Attempt<Contents> {
    worker.make_room();
    let room = worker.buffer.len();
    // A reported size of 0 is often wrong (/proc), so the read fills the whole buffer.
    let mut ask = if claimed == 0 { room } else { claimed + 1 };
    let mut len = 0;
    loop {
        let end = ask.min(room);
        let Some(into) = worker.buffer.get_mut(len..end) else { break };
        match io::read(source, into) {
            Ok(0) => return Ok(Contents { len, is_whole: true }),
            Ok(got) => len += got,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(at_source("read")(errno)),
        }
        if len == claimed && claimed != 0 {
            return Ok(Contents { len, is_whole: true });
        }
        if len == room {
            break;
        }
        if len >= ask {
            ask = room;
        }
    }
    Ok(Contents { len, is_whole: false })
}

/// Writes the first `len` bytes of the buffer to a new file.
pub(crate) fn write_single(worker: &mut CopyWorker<'_>, sink: &OwnedFd, len: usize) -> Attempt<()> {
    let mut rest = worker.buffer.get(..len).unwrap_or_default();
    let mut answer = Ok(());
    while !rest.is_empty() && answer.is_ok() {
        match io::write(sink, rest) {
            Ok(0) => answer = Err(Errno::IO),
            Ok(put) => rest = rest.get(put..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => answer = Err(errno),
        }
    }
    let done = (len - rest.len()) as u64;
    worker.tally.book(LAST_RESORT.info().name, &Tuning::default(), done);
    worker.moved(done);
    answer.map_err(|errno| CopyFailure::Sink("write", errno, done))
}

/// Moves the whole of a small file as planned. Bytes that another process appends during the copy are not copied, and
/// the copy reports that the source changed.
///
/// Calls the first mechanism of the plan once. If that call does not move all bytes, the driver starts over.
pub(crate) fn move_small(
    worker: &mut CopyWorker<'_>,
    source: &OwnedFd,
    sink: &OwnedFd,
    len: usize,
    planned: &PlannedMethod,
) -> Attempt<()> {
    let len = len as u64;
    let needs = Guarantees { durable: false, ..worker.run.options.needs };
    let transfer = || Transfer {
        source: Source::Fd(End { fd: source.as_fd(), kind: Kind::File, at: Some(0) }),
        sink: Sink::Fd(End { fd: sink.as_fd(), kind: Kind::File, at: Some(0) }),
        len: Some(len),
        needs,
    };
    if let Some(chosen) = planned.plan.chosen()
        && let Some(mechanism) = by_name(chosen.mechanism)
        && let Ok(mut mover) = mechanism.open(transfer(), &chosen.tuning)
        && mover.advance(len).is_ok_and(|moved| moved == len)
    {
        worker.tally.book(chosen.mechanism, &chosen.tuning, len);
        if is_clone(chosen.mechanism) {
            worker.tally.cloned += len;
            worker.shared.contests.cloned();
        }
        worker.moved(len);
        return Ok(());
    }
    run_plan(worker, &mut transfer(), planned, 0, None).map(drop)
}
