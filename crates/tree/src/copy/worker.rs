//! What a thread of a run has for itself, and how it tells what it has done.

use rustix::fs::Stat;
use std::{
    ffi::CStr,
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};
use thalweg_core::{Tuning, mechanisms::LAST_RESORT};
use thalweg_sys::buffer::Buffer;

use crate::{
    Event, Halt, Progress, Skip,
    copy::{
        copy_entry::CopyEntry, dest::conflict::Existing, plans::contest::Known, report::Tally,
        run::Run, shared::CopyShared, waiting::Waiting,
    },
    error::Failure,
    identity::Id,
    names::os,
};

/// The largest file that is read whole into the buffer that each worker has: the one that plain
/// reading and writing has by default.
pub(crate) fn single() -> usize {
    *SINGLE
}

static SINGLE: LazyLock<usize> = LazyLock::new(|| {
    let info = LAST_RESORT.info();
    info.bytes(&Tuning::default(), info.knobs.first().map_or("", |knob| knob.name))
});

/// One worker of a run.
pub(crate) struct Worker<'r> {
    pub shared: &'r CopyShared<'r>,
    pub run: &'r Run<'r>,
    pub tally: Tally,
    /// One buffer for all files.
    pub buffer: Buffer,
    /// Files without a name cannot be had here.
    pub no_tmpfile: bool,
    /// The file that the kernel would not clone.
    pub uncloneable: Option<Id>,
    /// How small files go, as far as it is known here.
    pub known: Known,
    // Done since it was last_report last: last_report now and then, as all workers add to the same two numbers.
    unreported: Progress,
    last_report: Instant,
    // Bytes of the file in hand that are counted as settled.
    pub(super) of_file: u64,
    /// Files that wait for their names.
    pub waiting: Vec<Waiting>,
    /// The file in hand is copied once more, without waiting for others.
    pub is_by_itself: bool,
}

/// How often progress is last_report.
const TELL: Duration = Duration::from_millis(50);

impl<'r> Worker<'r> {
    /// Books a file, if a list is wanted.
    pub fn list_file(&mut self, entry: &CopyEntry<'_>) {
        if self.run.options.list.is_some() {
            let names = entry.directory.paths.names();
            let names = names.into_iter().chain([entry.name]).map(CStr::to_bytes);
            self.tally.listed.push(names.collect::<Vec<_>>().join(&b'/'));
        }
    }

    pub fn new(shared: &'r CopyShared<'r>) -> Self {
        Self {
            shared,
            run: &shared.run,
            tally: Tally::default(),
            buffer: Buffer::default(),
            no_tmpfile: false,
            uncloneable: None,
            known: Known::default(),
            unreported: Progress::default(),
            last_report: Instant::now(),
            of_file: 0,
            waiting: Vec::new(),
            is_by_itself: false,
        }
    }

    /// Makes sure that the buffer is there: most workers of a small run never need one.
    pub fn make_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Buffer::new(single() + 1);
        }
    }

    /// Tells of a failure; a full destination ends the run.
    pub fn fail(&mut self, entry: &CopyEntry<'_>, failure: Failure) {
        if matches!(failure, Failure::Cancelled) {
            return;
        }
        let full = failure.ends_the_run();
        self.run.failed(entry.error(failure));
        if full {
            self.run.halt(Halt::Full);
        }
    }

    /// Tells of a file that is copied but for some attribute.
    pub fn incomplete(&self, entry: &CopyEntry<'_>, failure: Failure) {
        self.run.incomplete(entry.error(failure));
    }

    /// Tells of something copied, if it was asked to.
    pub fn tell_copied(&self, entry: &CopyEntry<'_>, backup: Option<&CStr>) {
        if !self.run.options.verbose {
            return;
        }
        let destination = entry.destination_path();
        let backup = backup.map(|name| destination.with_file_name(os(name)));
        self.run.events.event(&Event::Copied {
            source: &entry.source_path(),
            destination: &destination,
            backup: backup.as_deref(),
        });
    }

    /// Reports the existing destination that the copy replaced, if `cp` would have removed it.
    pub fn tell_removed(&self, entry: &CopyEntry<'_>, there: Option<&Existing>, source: &Stat) {
        let options = self.run.options;
        let is_removed =
            |there: &Existing| there.is_unlinked_by_cp(options, source, entry.named_by_caller());
        if options.verbose && there.is_some_and(is_removed) {
            self.run.events.event(&Event::Removed { destination: &entry.destination_path() });
        }
    }

    /// Tells of a file that is written into as it cannot be replaced.
    pub fn tell_written_into(&self, entry: &CopyEntry<'_>, refusal: Failure) {
        if self.run.options.verbose {
            let destination = &entry.destination_path();
            let refusal = &entry.error(refusal);
            self.run.events.event(&Event::WrittenInto { destination, refusal });
        }
    }

    /// Books a file that was left as it was.
    pub fn skip(&mut self, entry: &CopyEntry<'_>, reason: Skip) {
        self.tally.skipped += 1;
        if self.run.options.verbose {
            let destination: &Path = &entry.destination_path();
            self.run.events.event(&Event::Skipped { destination, reason });
        }
    }

    /// Counts bytes that have moved, and keeps the limit on their rate.
    pub fn moved(&mut self, bytes: u64) {
        self.unreported.bytes += bytes;
        self.unreported.settled.bytes += bytes;
        self.of_file += bytes;
        let run = self.run;
        if let Some(limit) = &run.limit {
            // What is cancelled is last_report by the next question.
            let _ = limit.keep(bytes, || run.go_on());
        }
    }

    /// Counts a file that is whole.
    pub fn finished_file(&mut self) {
        self.unreported.files += 1;
    }

    /// Books a file that is whole.
    pub fn count_file(&mut self, entry: &CopyEntry<'_>, backup: Option<&CStr>) {
        self.tally.files += 1;
        self.list_file(entry);
        self.finished_file();
        self.tell_copied(entry, backup);
    }

    /// Begins a file: what is moved from now on is its own.
    pub fn take_up(&mut self, entry: &CopyEntry<'_>, size: u64) {
        self.of_file = 0;
        // It may be all there is to tell of for long.
        if size > single() as u64 {
            self.run.events.current(&entry.source_path());
        }
    }

    /// A source file is dealt with: also what was not moved of it counts as settled.
    pub fn settle(&mut self, size: u64) {
        self.unreported.settled.files += 1;
        // More than its size was counted of a file that grew; the total knows nothing of that.
        self.unreported.settled.bytes += size.saturating_sub(self.of_file);
        self.of_file = 0;
    }

    /// Tells how far the run is, not too often; whether it did.
    pub fn tell(&mut self) -> bool {
        let due = self.last_report.elapsed() >= TELL;
        if due {
            self.tell_now();
        }
        due
    }

    /// Tells how far the run is.
    pub fn tell_now(&mut self) {
        self.last_report = Instant::now();
        let progress = self.run.advance(std::mem::take(&mut self.unreported));
        self.run.events.progress(progress);
    }
}
