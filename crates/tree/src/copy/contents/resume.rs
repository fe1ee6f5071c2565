//! Determines how much of a partial file can be kept.

use rustix::fs::fstat;
use std::os::fd::AsFd;
use thalweg_core::Cancelled;
use thalweg_sys::io;

use crate::{
    copy::contents::{job::ContentsJob, verify::ReadEnds},
    error::{Attempt, CopyFailure, at_sink},
    identity::size,
    journal::{Identity, Journal, JournalError, JournalSource},
};

/// Returns the length of the valid start of a partial file. If the journal describes another source, the length is 0.
/// If the journal is of this source and this boot, it is trusted. Otherwise, the start is valid as far as it equals the
/// source.
pub(crate) fn prefix(
    job: &ContentsJob<'_>,
    journal: Option<Result<Journal, JournalError>>,
    buffer: &mut [u8],
    go_on: impl Fn() -> Result<(), Cancelled>,
) -> Attempt<u64> {
    let there = size(&fstat(job.sink).map_err(at_sink("fstat"))?);
    if let Some(Ok(journal)) = journal {
        if journal.source != JournalSource::Local(Identity::of(job.stat)) {
            return Ok(0);
        }
        let done = journal.done.prefix();
        if journal.is_of_this_boot() && done <= there {
            return Ok(done);
        }
    }
    let ends = ReadEnds { source: job.source.as_fd(), copy: job.sink.as_fd() };
    equal_prefix(ends, there.min(size(job.stat)), buffer, go_on)
}

/// Returns how many of the first `most` bytes of a source and its copy are equal.
pub(crate) fn equal_prefix(
    ends: ReadEnds<'_>,
    most: u64,
    buffer: &mut [u8],
    go_on: impl Fn() -> Result<(), Cancelled>,
) -> Attempt<u64> {
    let half = buffer.len() / 2;
    let (ours, theirs) = buffer.split_at_mut(half);
    let mut at = 0;
    while at < most {
        go_on()?;
        let ask = half.min(usize::try_from(most - at).unwrap_or(half));
        let got = io::pread_full(ends.copy, &mut ours[..ask], at)
            .map_err(|errno| CopyFailure::Sink("pread", errno, at))?;
        let want = io::pread_full(ends.source, &mut theirs[..ask], at)
            .map_err(|errno| CopyFailure::Source("pread", errno))?;
        let both = got.min(want);
        let equal = ours[..both].iter().zip(&theirs[..both]).take_while(|(a, b)| a == b).count();
        at += equal as u64;
        if equal < both || both == 0 {
            break;
        }
    }
    Ok(at)
}
