//! Per-worker state of a copy, and how a worker reports its progress.

use rustix::fs::{FileType, Stat};
use std::{ffi::CStr, os::fd::AsFd, path::Path, sync::LazyLock, time::Instant};
use thalweg_core::{Tuning, cadence::PROGRESS_FLUSH, mechanisms::LAST_RESORT};
use thalweg_sys::buffer::Buffer;

use crate::{
    AttributeDifferences, ChangeAction, Event, Halt, Progress, Skip, SyncChange,
    copy::{
        compared::of_stats,
        copy_entry::{CopyEntry, QueuedEntry},
        dest::{existing::Existing, whole::is_whole_destination},
        plans::contest::MethodCache,
        report::TreeReport,
        run::CopyRun,
        shared::{CopyShared, ForeseenName},
        task::WaitingFile,
    },
    error::CopyFailure,
    identity::{Id, kind, size},
    names::os,
};

/// Returns the size of the largest file that is read whole into a worker's buffer: the default block size of plain
/// reads and writes.
pub(crate) fn single() -> usize {
    *SINGLE
}

static SINGLE: LazyLock<usize> = LazyLock::new(|| {
    let info = LAST_RESORT.info();
    info.bytes(&Tuning::default(), info.knobs.first().map_or("", |knob| knob.name))
});

/// Per-worker state of a copy.
pub(crate) struct CopyWorker<'r> {
    pub shared: &'r CopyShared<'r>,
    pub run: &'r CopyRun<'r>,
    pub tally: TreeReport,
    /// Buffer for small files; allocated when it is first needed.
    pub buffer: Buffer,
    /// `true` if the file system does not support `O_TMPFILE`, or cannot link such a file.
    pub no_tmpfile: bool,
    /// The last file that the kernel refused to clone.
    pub uncloneable: Option<Id>,
    /// Cached results of the contest between mechanisms for small files.
    pub known: MethodCache,
    // Progress not yet added to the shared counters; flushed every 50 ms to limit contention.
    unreported: Progress,
    last_report: Instant,
    /// Bytes of the current file that are already counted in [`Progress::settled`].
    pub(super) of_file: u64,
    /// Small files that are complete and wait for one sync.
    pub waiting: Vec<WaitingFile>,
    /// Files that could not be published after the sync; they are copied again.
    pub to_repeat: Vec<QueuedEntry>,
    /// `true` while a file of `to_repeat` is copied, which must not wait for a common sync again.
    pub is_by_itself: bool,
}

impl<'r> CopyWorker<'r> {
    /// Adds a file to the manifest, if there is one.
    pub fn list_file(&mut self, entry: &CopyEntry<'_>) {
        if self.run.options.list.is_some() {
            let names = entry.directory.paths.names();
            let names = names.into_iter().chain([entry.name]).map(CStr::to_bytes);
            self.tally.listed.names.push(names.collect::<Vec<_>>().join(&b'/'));
        }
    }

    pub fn new(shared: &'r CopyShared<'r>) -> Self {
        Self {
            shared,
            run: &shared.run,
            tally: TreeReport::default(),
            buffer: Buffer::default(),
            no_tmpfile: false,
            uncloneable: None,
            known: MethodCache::default(),
            unreported: Progress::default(),
            last_report: Instant::now(),
            of_file: 0,
            waiting: Vec::new(),
            to_repeat: Vec::new(),
            is_by_itself: false,
        }
    }

    /// Allocates the buffer if it does not exist yet.
    pub fn make_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Buffer::new(single() + 1);
        }
    }

    /// Reports a failure. A full or read-only destination stops the whole copy.
    pub fn fail(&mut self, entry: &CopyEntry<'_>, failure: CopyFailure) {
        if matches!(failure, CopyFailure::Cancelled) {
            return;
        }
        if matches!(failure, CopyFailure::Deferred) {
            self.tally.deferred.push(entry.path_below(self.run.options));
            return;
        }
        let full = failure.ends_the_run() && is_whole_destination(self.run, entry);
        self.run.failed(entry.error(failure));
        if full {
            self.run.halt(Halt::Full);
        }
    }

    /// Reports a file that was copied without some attribute.
    pub fn incomplete(&self, entry: &CopyEntry<'_>, failure: CopyFailure) {
        self.run.incomplete(entry.error(failure));
    }

    /// Reports a copied entry, with `-v`.
    pub fn report_copied(&self, entry: &CopyEntry<'_>, backup: Option<&CStr>) {
        if !self.run.options.verbose || self.run.options.sync.is_some() {
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

    /// Reports that the copy replaced an existing destination, if `cp` would have removed that destination.
    pub fn report_removed(&self, entry: &CopyEntry<'_>, there: Option<&Existing>, source: &Stat) {
        let options = self.run.options;
        let is_removed =
            |there: &Existing| there.is_unlinked_by_cp(options, source, entry.named_by_caller());
        let is_reported = options.verbose && options.sync.is_none();
        if is_reported && there.is_some_and(is_removed) {
            self.run.events.event(&Event::Removed { destination: &entry.destination_path() });
        }
    }

    /// Reports an existing file that is overwritten in place because it cannot be replaced, with `-v`.
    pub fn report_written_into(&self, entry: &CopyEntry<'_>, refusal: CopyFailure) {
        if self.run.options.verbose {
            let destination = &entry.destination_path();
            let refusal = &entry.error(refusal);
            self.run.events.event(&Event::WrittenInto { destination, refusal });
        }
    }

    /// Counts an existing file that was skipped.
    pub fn skip(&mut self, entry: &CopyEntry<'_>, reason: Skip) {
        self.tally.skipped += 1;
        if self.run.options.verbose && self.run.options.sync.is_none() {
            let destination: &Path = &entry.destination_path();
            self.run.events.event(&Event::Skipped { destination, reason });
        }
    }

    /// Counts moved bytes, and sleeps to keep the rate limit.
    pub fn moved(&mut self, bytes: u64) {
        self.unreported.bytes += bytes;
        self.unreported.settled.bytes += bytes;
        self.of_file += bytes;
        let run = self.run;
        if let Some(limit) = &run.limit {
            // Cancellation is noticed at the next call of `go_on`.
            let _ = limit.keep(bytes, || run.go_on());
        }
    }

    /// Counts a complete file in the progress.
    pub fn finished_file(&mut self) {
        self.unreported.files += 1;
    }

    /// Counts, lists and reports a complete file.
    pub fn count_file(&mut self, entry: &CopyEntry<'_>, backup: Option<&CStr>) {
        self.tally.files += 1;
        self.list_file(entry);
        self.finished_file();
        self.report_copied(entry, backup);
    }

    /// Starts to count the moved bytes for a new file.
    pub fn take_up(&mut self, entry: &CopyEntry<'_>, size: u64) {
        self.of_file = 0;
        // While a large file is copied, nothing else may show progress, so its path is reported now.
        if size > single() as u64 {
            self.run.events.current(&entry.source_path());
        }
    }

    /// Counts a source file as settled. Adds the bytes that were not moved, such as those of a skipped file.
    pub fn settle(&mut self, size: u64) {
        self.unreported.settled.files += 1;
        // If a file grew during the copy, more bytes than its old size are counted already. No bytes are added then.
        self.unreported.settled.bytes += size.saturating_sub(self.of_file);
        self.of_file = 0;
    }

    /// Reports the progress if the interval has passed. Returns `true` if it was reported.
    pub fn flush_progress_when_due(&mut self) -> bool {
        let due = self.last_report.elapsed() >= PROGRESS_FLUSH;
        if due {
            self.flush_progress();
        }
        due
    }

    /// Reports the progress.
    pub fn flush_progress(&mut self) {
        self.last_report = Instant::now();
        let progress = self.run.progress.add(std::mem::take(&mut self.unreported));
        self.run.events.progress(progress);
    }

    /// Counts and reports a new or replaced entry of a sync. `there`: the entry that was replaced.
    pub fn note_copied(&mut self, entry: &CopyEntry<'_>, source: &Stat, there: Option<&Existing>) {
        if self.run.options.sync.is_none() {
            return;
        }
        if let Some(differs) = there.and_then(|there| there.renewed) {
            return self.note_attributes(entry, source, differs);
        }
        // An entry of a staging directory is not visible yet.
        let there = there.map(|there| &there.stat).filter(|_| !entry.directory.is_staged);
        let dir = entry.directory.open().ok().flatten();
        let Some((there, dir)) = there.zip(dir) else {
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        };
        let mut differs = of_stats(self.run, dir.as_fd(), source, there);
        differs.content = !differs.any() || self.run.options.compares_bytes();
        self.note_change(entry, ChangeAction::Replace, source, differs);
    }

    /// Counts and reports an existing entry of a sync. `differs` shows which attributes were changed, if any.
    pub fn note_attributes(
        &mut self,
        entry: &CopyEntry<'_>,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        if entry.directory.is_staged {
            // An earlier run left the entry in a directory that is not visible yet, so it counts as new.
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        }
        if differs.any() {
            self.note_change(entry, ChangeAction::Attributes, source, differs);
        } else {
            self.tally.sync.unchanged += 1;
        }
    }

    /// Counts and reports an existing name of a sync that became a hard link to the copy of another name. `there`: the
    /// file that had the name.
    pub fn note_link(&mut self, entry: &CopyEntry<'_>, source: &Stat, there: &Stat) {
        let none = AttributeDifferences::default();
        if self.shared.is_renewed(Id::of(source), Id::of(there)) {
            self.note_attributes(entry, source, none);
        } else {
            self.note_change(entry, ChangeAction::Link, source, none);
        }
    }

    /// Counts and reports a change of a sync.
    pub fn note_change(
        &mut self,
        entry: &CopyEntry<'_>,
        action: ChangeAction,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        self.tally.sync.count(action);
        let is_directory = kind(source) == FileType::Directory;
        let is_linked = !is_directory && self.run.options.links_names(false, source.st_nlink);
        self.report_change(entry, source, action, is_linked, differs);
    }

    /// Counts and reports a new file that is a link to a file of an earlier snapshot.
    pub fn note_linked(&mut self, entry: &CopyEntry<'_>, source: &Stat) {
        if self.run.options.sync.is_none() {
            return;
        }
        let action = ChangeAction::Create;
        self.tally.sync.count(action);
        self.tally.sync.linked += 1;
        self.report_change(entry, source, action, true, AttributeDifferences::default());
    }

    fn report_change(
        &self,
        entry: &CopyEntry<'_>,
        source: &Stat,
        action: ChangeAction,
        is_linked: bool,
        differs: AttributeDifferences,
    ) {
        if !self.run.options.verbose {
            return;
        }
        self.run.events.event(&Event::Sync(&SyncChange {
            path: &entry.path_below(self.run.options),
            action,
            kind: kind(source),
            is_linked,
            size: size(source),
            differs,
        }));
    }

    /// In a dry run, returns the outcome for one name of a source with several names. `there` is the existing file, if
    /// it is equal to the source. `None` means that this name will be a new file.
    pub fn foresee_name(&self, source: &Stat, there: Option<&Stat>) -> ForeseenName {
        self.shared.foresee(Id::of(source), there.map(Id::of))
    }
}
