//! Copies one file with contents: prepare, transfer, verify, apply attributes, install.
//!
//! [`copy_file`] runs the five steps of [`FileCopy`] and is the only place that repeats them.

mod outcome;
mod prepare;

use rustix::fs::{FileType, SeekFrom, fstat, fstatfs, seek};
use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};
use thalweg_core::atomic_file::sync_directory;
use thalweg_sys::io;

use self::prepare::{FileMethod, Prepared};
use crate::{
    Event, Skip,
    copy::{
        attributes::{inherit, modified},
        contents::{
            batch::let_wait,
            clone::{Cloning, clone_whole, was_no_clone},
            delta::move_delta,
            job::ContentsJob,
            large::move_large,
            recheck::is_equal,
            small::{Contents, move_small, write_single},
            verify::{ReadEnds, SinkEnd},
        },
        copy_entry::{CopyEntry, SourceFile},
        dest::{
            conflict::{is_done, resolve_conflict},
            existing::{DestinationVerdict, Existing, FileDestination},
            publish::{PublishOutcome, publish},
            write_target::can_be_written_into,
        },
        durable::FileSync,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    holder::Holder,
    identity::{Id, changed, ctime, kind, mtime, size},
    journal::JournalKeeper,
};

/// The reason why an attempt ended without a copy.
enum CopyStop {
    Failed(CopyFailure),
    /// The kernel refused to clone the file; the next attempt moves its bytes.
    CloneRefused,
    /// The next attempt must check the destination again.
    LookAgain,
}

impl From<CopyFailure> for CopyStop {
    fn from(failure: CopyFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Copies a file to a destination that does not exist or may be replaced. Returns the identity of the copy if other
/// names of the source can be linked to it, otherwise `None`.
pub(crate) fn copy_file(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
    verdict: DestinationVerdict,
) -> Attempt<Option<Id>> {
    let Some(dir) = entry.directory.open()? else { return Ok(None) };
    let dir = dir.as_fd();
    let mut destination = FileDestination::of(verdict);
    loop {
        let counts = (worker.tally.verified, worker.tally.changed);
        let mut copy = FileCopy { worker, entry, dir, source, destination: &destination };
        let failure = match copy.run() {
            Ok(copied) => return Ok(copied),
            Err(CopyStop::CloneRefused) => continue,
            Err(CopyStop::LookAgain) => {
                rewind(source)?;
                match resolve_conflict(worker.run, entry, dir, source.stat)? {
                    // Another process is writing this file, so a comparison would be useless. The file is copied again.
                    DestinationVerdict::Skip(Skip::Done, there) if there.is_doubted => {
                        destination = FileDestination::of(DestinationVerdict::Replace(there));
                    }
                    DestinationVerdict::Skip(reason, _) => {
                        worker.skip(entry, reason);
                        worker.list_file(entry);
                        return Ok(None);
                    }
                    verdict => destination = FileDestination::of(verdict),
                }
                continue;
            }
            Err(CopyStop::Failed(failure)) => failure,
        };
        let existing = destination.existing.as_mut();
        let Some(existing) = existing.filter(|existing| {
            can_be_written_into(worker.run.options, existing, source.stat, &failure)
        }) else {
            return Err(failure);
        };
        // The next attempt writes into the existing file, as `cp` does from the start.
        rewind(source)?;
        existing.keeps_inode = true;
        (worker.tally.verified, worker.tally.changed) = counts;
        worker.report_written_into(entry, failure);
    }
}

/// Seeks a regular file to its start for the next attempt.
fn rewind(source: SourceFile<'_>) -> Attempt<()> {
    if kind(source.stat) == FileType::RegularFile {
        seek(source.fd, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
    }
    Ok(())
}

/// One attempt to copy one file.
struct FileCopy<'c, 'r> {
    worker: &'c mut CopyWorker<'r>,
    entry: &'c CopyEntry<'c>,
    /// The destination directory.
    dir: BorrowedFd<'c>,
    source: SourceFile<'c>,
    destination: &'c FileDestination,
}

impl<'c> FileCopy<'c, '_> {
    fn run(&mut self) -> Result<Option<Id>, CopyStop> {
        let mut file = self.prepare()?;
        self.transfer(&mut file).or_else(|stopped| self.give_up(&mut file, stopped))?;
        let finished = self.verify(&file).map(|has_changed| {
            self.apply_attributes(&file);
            if has_changed {
                self.mark_as_unfinished(&file);
            }
        });
        let sync = self.sync();
        if finished.is_ok()
            && file.choice.contents.is_whole
            && let_wait(
                self.worker,
                self.entry,
                self.source.stat,
                &mut file.sink,
                self.destination,
                sync,
            )
        {
            return Ok(None);
        }
        match finished.and_then(|()| self.install(&mut file, sync)) {
            Ok(published) => Ok(self.conclude(&file, published)?),
            Err(failure) => self.give_up(&mut file, failure.into()).map(|()| None),
        }
    }

    fn existing(&self) -> Option<&'c Existing> {
        self.destination.existing.as_ref()
    }

    /// Moves the bytes by the chosen method.
    fn transfer(&mut self, file: &mut Prepared<'_>) -> Result<(), CopyStop> {
        let began = Instant::now();
        let (worker, source, sink) = (&mut *self.worker, self.source.fd, file.sink.fd());
        let Contents { len, is_whole } = file.choice.contents;
        let takes_holes =
            self.destination.existing.as_ref().is_none_or(|there| !there.is_special());
        let adopted = file.sink.is_adopted();
        let job = ContentsJob { source, stat: self.source.stat, sink, adopted, takes_holes };
        match &file.choice.method {
            FileMethod::Clone(how) => match (clone_whole(worker, self.source, sink), how) {
                (Ok(()), _) => {}
                (Err(errno), Cloning::Must) => {
                    return Err(CopyFailure::Sink("FICLONE", errno, 0).into());
                }
                (Err(errno), Cloning::May(planned)) => {
                    was_no_clone(worker, errno, planned);
                    worker.uncloneable = Some(Id::of(self.source.stat));
                    return Err(CopyStop::CloneRefused);
                }
            },
            FileMethod::Small(planned) => move_small(worker, source, sink, len, planned)?,
            FileMethod::Buffer => write_single(worker, sink, len)?,
            FileMethod::Delta(base) => move_delta(worker, &job, base, file.journal.as_mut())?,
            FileMethod::Driver => move_large(worker, &job, len, file.journal.as_mut())?,
        }
        if let Some(reading) = file.choice.reading.filter(|_| is_whole) {
            let is_planned = matches!(file.choice.method, FileMethod::Small(_));
            let took = reading + began.elapsed();
            worker.shared.contests.note(is_planned, size(self.source.stat), took);
        }
        Ok(())
    }

    /// Reports a source that changed during the copy, and returns `true`. With `--verify`, compares the copy with its
    /// source.
    fn verify(&mut self, file: &Prepared<'_>) -> Attempt<bool> {
        let (worker, stat, existing) =
            (&mut *self.worker, self.source.stat, self.destination.existing.as_ref());
        let options = worker.run.options;
        let sink = file.sink.fd();
        // A delayed write would change the times, so all writes are flushed before the attributes are set.
        if existing.is_some() || self.entry.directory.may_fail_at_close {
            io::flush(sink).map_err(|errno| CopyFailure::Sink("close", errno, size(stat)))?;
        }
        let is_regular = kind(stat) == FileType::RegularFile;
        let look = || fstat(self.source.fd).map_err(at_source("fstat"));
        let mut has_changed = is_regular && changed(stat, &look()?);
        let can_be_read_again = is_regular && existing.is_none_or(Existing::can_be_read_again);
        worker.tally.verified.not_read += u64::from(options.verify.is_some() && !can_be_read_again);
        // A device may be larger than the data written to it, so the comparison stops at the end of the source.
        let is_special = existing.is_some_and(Existing::is_special);
        let end = if is_special { SinkEnd::OfSource } else { SinkEnd::Own };
        if let Some(hash) = options.verify.filter(|_| can_be_read_again)
            && !is_equal(
                worker,
                ReadEnds { source: self.source.fd.as_fd(), copy: sink.as_fd() },
                end,
                hash,
            )?
        {
            has_changed = has_changed || changed(stat, &look()?);
            if !has_changed {
                return Err(CopyFailure::Differ);
            }
        }
        if has_changed {
            worker.tally.changed += 1;
            worker.run.events.event(&Event::Changed { source: &self.entry.source_path() });
        }
        Ok(has_changed)
    }

    /// Gives the copy its owner, mode, extended attributes and times. Reports every attribute that the destination
    /// refuses.
    fn apply_attributes(&self, file: &Prepared<'_>) {
        if file.inherits_acl {
            // The inherited ACL may give other users access, so it is set after all bytes are written.
            inherit(file.name_at, file.sink.fd().as_fd());
        }
        if self.existing().is_some_and(Existing::is_special) {
            return;
        }
        let (run, entry) = (self.worker.run, self.entry);
        let holder = Holder::Fd(file.sink.fd().as_fd());
        let applied = self.source.xattrs(run.options.preserve).and_then(|taken| {
            entry.apply_attributes(run, holder, &taken, self.source.stat, &file.wanted)
        });
        if let Err(failure) = applied {
            self.worker.incomplete(entry, failure);
        }
    }

    /// Gives the copy an earlier time if a later run would take it for complete, although its source changed.
    fn mark_as_unfinished(&self, file: &Prepared<'_>) {
        if self.existing().is_some_and(Existing::is_special) {
            return;
        }
        let (run, sink, stat) = (self.worker.run, file.sink.fd(), self.source.stat);
        let mark = || {
            let now = fstat(self.source.fd).map_err(at_source("fstat"))?;
            let own = fstat(sink).map_err(at_sink("fstat"))?;
            if is_done(run.options, &now, &own, || fstatfs(sink)) {
                // Some file systems store only even seconds, so the time is earlier by two seconds.
                let (seconds, _) = mtime(stat).min(ctime(stat));
                Holder::Fd(sink.as_fd()).set_times(&modified(seconds - 2, 0))?;
            }
            Ok(())
        };
        if let Err(failure) = mark() {
            self.worker.incomplete(self.entry, failure);
        }
    }

    /// Returns `true` if the walk may meet the source file under another name, which is then hard-linked to this copy.
    fn has_links(&self) -> bool {
        let is_named = self.entry.named_by_caller();
        self.worker.run.options.links_names(is_named, self.source.stat.st_nlink)
    }

    fn sync(&self) -> FileSync {
        let run = self.worker.run;
        let (elsewhere, has_links) = (self.destination.is_elsewhere(), self.has_links());
        let directory = self.entry.directory;
        FileSync::of(run.options, run.concurrency, directory, self.existing(), elsewhere, has_links)
    }

    /// Syncs the copy and gives it its name.
    fn install(&mut self, file: &mut Prepared<'_>, sync: FileSync) -> Attempt<PublishOutcome> {
        let is_covered = self.entry.directory.is_synced_whole && !self.destination.is_elsewhere();
        let whole = self.worker.run.whole.as_ref().filter(|_| is_covered);
        sync.perform(file.sink.fd(), size(self.source.stat), whole)?;
        let forgotten = file.journal.as_mut().map_or(Ok(()), JournalKeeper::forget);
        forgotten.map_err(at_sink("unlinkat"))?;
        let (options, stat, existing) =
            (self.worker.run.options, self.source.stat, self.existing());
        let published = publish(options, self.entry, stat, &mut file.sink, file.name_at, existing)?;
        if sync == FileSync::All && self.destination.is_elsewhere() {
            sync_directory(file.name_at.dir, file.sink.fd().as_fd())?;
        }
        Ok(published)
    }
}
