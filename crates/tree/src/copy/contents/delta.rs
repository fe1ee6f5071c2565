//! Replaces a file by a clone of itself, into which only the blocks that differ from the source are written.
//!
//! The clone is the partial file of the copy. The copy never writes the replaced file, which other processes may change
//! at any time. Such changes do not affect the clone.

use rustix::fs::{FileType, fstat};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_core::{
    Tuning,
    mechanisms::{LAST_RESORT, cloner},
};
use thalweg_sys::{Errno, copy::clone_range, io};

use crate::{
    When,
    copy::{
        contents::{
            clone::{plan_of_clone, was_no_clone},
            job::ContentsJob,
            large::{adopt, move_rest},
            sparse::{BLOCK, next_extent, seems_sparse, write_all},
        },
        copy_entry::SourceFile,
        dest::existing::Existing,
        name_at::NameAt,
        plans::contest::PlannedMethod,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::{Id, kind, size},
    journal::JournalKeeper,
    read,
};

/// Number of bytes after which a comparison without an equal block ends: the files have nothing in common.
const TRIAL: u64 = 8 << 20;

/// The file that is replaced, and the plan that begins with a clone of this file.
pub(crate) struct DeltaBase {
    replaced: OwnedFd,
    planned: PlannedMethod,
}

/// Returns the replaced file if a sync can write the new file as a clone of it. Returns `None` if the file system has
/// no clones. Also returns `None` if it can clone the source itself, which costs less.
pub(crate) fn delta_base(
    worker: &CopyWorker<'_>,
    name_at: NameAt<'_>,
    source: SourceFile<'_>,
    existing: &Existing,
) -> Option<DeltaBase> {
    let options = worker.run.options;
    let has_contents = |stat| kind(stat) == FileType::RegularFile && size(stat) > 0;
    let is_wanted = options.sync.is_some()
        && has_contents(source.stat)
        && has_contents(&existing.stat)
        && !existing.is_written_into(options)
        && options.reflink == When::Auto
        && options.sparse == When::Auto
        && options.request.only.is_none();
    if !is_wanted || plan_of_clone(worker, name_at.dir, source).is_some() {
        return None;
    }
    // If the existing file cannot be read, an ordinary copy of the whole source replaces it.
    let replaced = read::open(name_at.dir, name_at.name, false).ok()?;
    let stat = fstat(&replaced).ok()?;
    if Id::of(&stat) != Id::of(&existing.stat) {
        return None;
    }
    let planned = plan_of_clone(worker, name_at.dir, SourceFile { fd: &replaced, stat: &stat })?;
    Some(DeltaBase { replaced, planned })
}

/// Clones the replaced file into the sink and writes the blocks in which the source differs.
pub(crate) fn move_delta(
    worker: &mut CopyWorker<'_>,
    job: &ContentsJob<'_>,
    base: &DeltaBase,
    mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
) -> Attempt<()> {
    let unit = fstat(job.sink).map_err(at_sink("fstat"))?.st_blksize;
    let unit = u64::try_from(unit).unwrap_or(0).max(BLOCK as u64);
    let from = adopt(worker, job, keeper.as_deref_mut(), unit)?;
    let cloned = match clone_from(&base.replaced, job.sink, from) {
        Ok(cloned) => cloned,
        Err(errno) => {
            was_no_clone(worker, errno, &base.planned);
            return move_rest(worker, job, from, keeper);
        }
    };
    worker.make_room();
    let mut run = DeltaRun {
        job,
        at: from,
        is_sparse: seems_sparse(job.stat),
        buffer: std::mem::take(&mut worker.buffer),
        kept: 0,
        written: 0,
    };
    let end = run.compare(worker, cloned, keeper.as_deref_mut());
    worker.buffer = run.buffer;
    worker.tally.book(LAST_RESORT.info().name, &Tuning::default(), run.written);
    if let Some(cloner) = cloner().filter(|_| run.kept > 0) {
        worker.tally.book(cloner.info().name, &Tuning::default(), run.kept);
        worker.tally.cloned += run.kept;
    }
    let end = end?;
    io::ftruncate(job.sink, run.at).map_err(at_sink("ftruncate"))?;
    match end {
        DeltaEnd::OfSource => Ok(()),
        DeltaEnd::OfClone => move_rest(worker, job, run.at, keeper),
    }
}

/// Clones a file from this offset to its end. Returns the size of the file.
fn clone_from(file: &OwnedFd, sink: &OwnedFd, from: u64) -> Result<u64, Errno> {
    let len = size(&fstat(file)?);
    if len > from {
        // The length is explicit: 0 would include bytes that are appended during the call.
        clone_range(file, from, len - from, sink, from)?;
    }
    Ok(len)
}

/// The reason why a comparison ended.
enum DeltaEnd {
    /// The source has no more bytes.
    OfSource,
    /// The clone ended, its blocks cannot be read, or it has no blocks in common with the source. The rest of the
    /// source is written without a comparison.
    OfClone,
}

/// State of one comparison.
struct DeltaRun<'j> {
    job: &'j ContentsJob<'j>,
    /// Everything before this offset is equal to the source.
    at: u64,
    /// `true` if the comparison looks for holes of the source.
    is_sparse: bool,
    buffer: thalweg_sys::buffer::Buffer,
    /// Number of bytes that stay shared with the replaced file.
    kept: u64,
    written: u64,
}

impl DeltaRun<'_> {
    /// Makes the sink equal to the source until one of them ends.
    fn compare(
        &mut self,
        worker: &mut CopyWorker<'_>,
        cloned: u64,
        mut keeper: Option<&mut JournalKeeper<BorrowedFd<'_>>>,
    ) -> Attempt<DeltaEnd> {
        while self.at < cloned && (self.kept > 0 || self.written < TRIAL) {
            worker.run.go_on()?;
            let data = self.next_data()?;
            let before = self.at;
            if data.start > self.at {
                self.clear(data.start)?;
            } else {
                match self.compare_chunk(data.end - data.start)? {
                    Some(0) => return Ok(DeltaEnd::OfSource),
                    Some(_) => {}
                    None => break,
                }
            }
            worker.moved(self.at - before);
            if let Some(keeper) = keeper.as_deref_mut() {
                keeper.note(self.at);
            }
            worker.flush_progress_when_due();
        }
        Ok(DeltaEnd::OfClone)
    }

    /// Returns the next range of the source that has data.
    fn next_data(&self) -> Attempt<Range<u64>> {
        let end = size(self.job.stat);
        if !self.is_sparse || self.at >= end {
            return Ok(self.at..u64::MAX);
        }
        let extent = next_extent(self.job.source.as_fd(), self.at, end)?;
        Ok(extent.map_or(end..end, |(from, to)| from..to))
    }

    /// Makes the sink read as zeros up to this offset, because the source has a hole there.
    fn clear(&mut self, end: u64) -> Attempt<()> {
        match io::punch_hole(self.job.sink, self.at, end - self.at) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.buffer.fill(0);
                let mut at = self.at;
                while at < end {
                    let len =
                        self.buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                    write_all(self.job.sink.as_fd(), &self.buffer[..len], at)?;
                    at += len as u64;
                }
            }
            Err(errno) => return Err(CopyFailure::Sink("fallocate", errno, self.at)),
        }
        self.at = end;
        Ok(())
    }

    /// Compares at most `most` bytes and writes the differing blocks. Returns the number of bytes that the source had,
    /// or `None` if the sink cannot be read.
    fn compare_chunk(&mut self, most: u64) -> Attempt<Option<usize>> {
        let half = self.buffer.len() / 2 / BLOCK * BLOCK;
        let (theirs, ours) = self.buffer.split_at_mut(half);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let got = io::pread_full(self.job.source, &mut theirs[..half.min(most)], self.at)
            .map_err(|errno| CopyFailure::Source("pread", errno))?;
        let theirs = &theirs[..got];
        // This read fails if blocks of the replaced file are damaged. The caller then copies the rest of the source
        // without these blocks.
        let Ok(have) = io::pread_full(self.job.sink, &mut ours[..got], self.at) else {
            return Ok(None);
        };
        let ours = &ours[..have];
        let mut differ = 0;
        if theirs != ours {
            for range in differing(theirs, ours) {
                let at = self.at + range.start as u64;
                write_all(self.job.sink.as_fd(), &theirs[range.clone()], at)?;
                differ += range.len() as u64;
            }
        }
        self.written += differ;
        self.kept += got as u64 - differ;
        self.at += got as u64;
        Ok(Some(got))
    }
}

/// Returns the ranges of `theirs` that differ from `ours`, in whole blocks. Adjacent blocks form one range.
fn differing(theirs: &[u8], ours: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for start in (0..theirs.len()).step_by(BLOCK) {
        let end = (start + BLOCK).min(theirs.len());
        if ours.get(start..end) == Some(&theirs[start..end]) {
            continue;
        }
        match ranges.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => ranges.push(start..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_blocks_are_written_and_neighbours_together() {
        let ours = vec![1; 5 * BLOCK + 10];
        let mut theirs = ours.clone();
        assert_eq!(differing(&theirs, &ours), []);
        (theirs[BLOCK + 3], theirs[2 * BLOCK], theirs[5 * BLOCK + 9]) = (2, 2, 2);
        assert_eq!(differing(&theirs, &ours), [BLOCK..3 * BLOCK, 5 * BLOCK..5 * BLOCK + 10]);
        // A longer block is never equal to a shorter one.
        let longer = differing(&ours, &ours[..=BLOCK]);
        assert_eq!(longer, vec![BLOCK..5 * BLOCK + 10; 1]);
        assert_eq!(differing(&ours[..BLOCK], &ours), []);
    }
}
