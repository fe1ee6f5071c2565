//! Shared and per-thread state of a comparison.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use thalweg_core::{Cancelled, cadence::PROGRESS_FLUSH};
use thalweg_sys::{Errno, buffer::Buffer, io, usage::Usage};

use super::{Comparison, DifferenceKind, Finding};
use crate::{Error, Events, Progress, event::ProgressSum, threads::locked};

/// The side, the name and the errno of a failed call.
pub(crate) type SideFailure = (usize, &'static str, Errno);

/// State shared by all threads.
pub(crate) struct CompareRun<'r> {
    pub events: &'r dyn Events,
    progress: ProgressSum,
    stopped: AtomicBool,
    // Errors that do not belong to one thread.
    found: Mutex<Comparison>,
    began: (Instant, Usage),
}

/// Per-thread state.
pub(crate) struct CompareThread {
    pub found: Comparison,
    /// Buffers for the two sides.
    pub buffers: [Buffer; 2],
    // Progress that is not yet added to the shared counters.
    unflushed: Progress,
    flushed_at: Instant,
}

/// Number of bytes read at a time.
pub(crate) const BUFFER: usize = 256 << 10;

impl<'r> CompareRun<'r> {
    pub fn new(events: &'r dyn Events) -> Self {
        Self {
            events,
            progress: ProgressSum::default(),
            stopped: AtomicBool::new(false),
            found: Mutex::default(),
            began: (Instant::now(), Usage::now_process()),
        }
    }

    /// Returns an error if the comparison is cancelled. Every later call then returns an error too.
    pub fn go_on(&self) -> Result<(), Cancelled> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Cancelled);
        }
        self.events.go_on().inspect_err(|_| self.stopped.store(true, Ordering::Relaxed))
    }

    /// Reports and counts an error that does not belong to one thread.
    pub fn failed(&self, error: Error) {
        self.events.event(&crate::Event::Failed(&error));
        let mut found = locked(&self.found);
        found.error_count += 1;
        found.error.get_or_insert(error);
    }

    /// Combines the results of all threads.
    pub fn conclude(self, hands: Vec<CompareThread>) -> Comparison {
        let mut all = std::mem::take(&mut *locked(&self.found));
        for mut hand in hands {
            self.flush_progress(&mut hand);
            all.add(hand.found);
        }
        all.stopped = self.stopped.into_inner();
        all.seconds = self.began.0.elapsed().as_secs_f64();
        all.cpu_seconds = Usage::now_process().since(&self.began.1).cpu().as_secs_f64();
        all
    }

    /// Counts files and bytes that were read, and reports the progress if the interval has passed.
    pub fn advance(&self, hand: &mut CompareThread, files: u64, bytes: u64) {
        hand.unflushed.files += files;
        hand.unflushed.bytes += bytes;
        hand.unflushed.settled.files += files;
        hand.unflushed.settled.bytes += bytes;
        if hand.flushed_at.elapsed() >= PROGRESS_FLUSH {
            self.flush_progress(hand);
        }
    }

    /// Counts a processed file of which `unread` bytes did not need to be read.
    pub fn pass(&self, hand: &mut CompareThread, unread: u64) {
        hand.unflushed.settled.files += 1;
        hand.unflushed.settled.bytes += unread;
        self.advance(hand, 0, 0);
    }

    /// Returns the offset of the first difference in a range. If only one file ends in it, that end is a difference.
    pub fn first_difference(
        &self,
        hand: &mut CompareThread,
        ends: [BorrowedFd<'_>; 2],
        range: std::ops::Range<u64>,
    ) -> Result<Option<u64>, SideFailure> {
        hand.make_room();
        let mut at = range.start;
        while at < range.end && self.go_on().is_ok() {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let mut lens = [0; 2];
            for (side, buffer) in hand.buffers.iter_mut().enumerate() {
                let ask = left.min(buffer.len());
                lens[side] = io::pread_full(ends[side], &mut buffer[..ask], at)
                    .map_err(|errno| (side, "pread", errno))?;
            }
            let both = lens[0].min(lens[1]);
            let [ours, theirs] = hand.buffers.each_ref().map(|buffer| &buffer[..both]);
            if ours != theirs {
                let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
                return Ok(Some(at + same as u64));
            }
            if lens[0] != lens[1] {
                return Ok(Some(at + both as u64));
            }
            if both == 0 {
                break;
            }
            at += both as u64;
            self.advance(hand, 0, both as u64);
        }
        Ok(None)
    }

    /// Counts an equal file, unless the comparison was cancelled before its end.
    pub fn same(&self, hand: &mut CompareThread, bytes: u64) {
        if self.go_on().is_err() {
            return;
        }
        hand.found.same += 1;
        hand.found.bytes += bytes;
        self.advance(hand, 1, 0);
    }

    fn flush_progress(&self, hand: &mut CompareThread) {
        hand.flushed_at = Instant::now();
        self.events.progress(self.progress.add(std::mem::take(&mut hand.unflushed)));
    }

    /// Reports a difference, and counts it.
    pub fn find(&self, hand: &mut CompareThread, finding: &Finding<'_>) {
        let found = &mut hand.found;
        *match finding {
            Finding::Differs { how: DifferenceKind::Attributes(_), .. } => &mut found.attributes,
            Finding::Differs { .. } => &mut found.differ,
            Finding::Missing { .. } => &mut found.missing,
            Finding::Extra { .. } => &mut found.extra,
        } += 1;
        self.events.finding(finding);
    }
}

impl CompareThread {
    pub fn new() -> Self {
        Self {
            found: Comparison::default(),
            buffers: [Buffer::default(), Buffer::default()],
            unflushed: Progress::default(),
            flushed_at: Instant::now(),
        }
    }

    /// Allocates both buffers if they do not exist yet.
    pub fn make_room(&mut self) {
        for buffer in &mut self.buffers {
            buffer.resize(BUFFER);
        }
    }
}
