//! The main loop of a worker: takes tasks from the queue, lists directories, and dispatches each entry by its file
//! type.

use rustix::fs::{FileType, Mode, fstat, openat};
use std::{mem::MaybeUninit, os::fd::AsFd, sync::Arc};
use thalweg_core::atomic_file::name::is_reserved;

use crate::{
    Becomes, Event, Refusal,
    copy::{
        contents::batch::name_waiting,
        copy_entry::{CopyEntry, SourceDirectory},
        descriptors::retry_for_descriptors,
        dest::mkdir::enter,
        directory::Directory,
        entry::{
            file::copy_file_entry,
            linking::link_to_source,
            node::{copy_special, copy_symlink},
        },
        report::TreeReport,
        run::CopyRun,
        shared::CopyShared,
        task::CopyTask,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_source},
    fs::{
        cached::{CachedDirectory, ReopenAddress},
        list::{directory_flags, each_entry, is_directory, listing_buffer},
    },
    identity::{Id, kind, mtime, size},
    names::STATE_FILE,
    queue::PackedNames,
};

/// Names handed to an idle worker at a time.
const BATCH: usize = 64;
// Number of queued directories above which a worker enters a directory immediately. The limit bounds memory for a
// directory with a million subdirectories.
const MOST_WAITING: usize = 1 << 12;
// Maximum nesting of immediately entered directories. The limit bounds the stack.
const MOST_NESTED: usize = 32;

/// A worker that walks the tree.
pub(crate) struct CopyWalker<'r> {
    shared: &'r CopyShared<'r>,
    worker: CopyWorker<'r>,
    // Unused buffers for `getdents64`.
    listings: Vec<Vec<MaybeUninit<u8>>>,
    depth: usize,
}

impl<'r> CopyWalker<'r> {
    pub fn new(shared: &'r CopyShared<'r>) -> Self {
        Self { shared, worker: CopyWorker::new(shared), listings: Vec::new(), depth: 0 }
    }

    fn run(&self) -> &'r CopyRun<'r> {
        &self.shared.run
    }

    /// Performs tasks until none are left. The queue must expect this worker.
    pub fn work(mut self) -> TreeReport {
        self.shared.queue.arrive();
        loop {
            // Publishes complete files before the worker sleeps, because other workers may need their names.
            if self.shared.queue.len() == 0 {
                self.name_waiting();
            }
            let Some((task, busy)) = self.shared.queue.next() else { break };
            self.perform(task);
            drop(busy);
        }
        self.name_waiting();
        self.worker.flush_progress();
        self.worker.tally
    }

    fn name_waiting(&mut self) {
        name_waiting(&mut self.worker);
        self.copy_again();
    }

    /// Copies again the files that could not be published after their common sync, each with its own sync.
    fn copy_again(&mut self) {
        for queued in std::mem::take(&mut self.worker.to_repeat) {
            let entry = queued.entry();
            self.worker.is_by_itself = true;
            if let Err(failure) = copy_file_entry(&mut self.worker, &entry) {
                self.worker.fail(&entry, failure);
            }
            self.worker.is_by_itself = false;
            Directory::done(self.run(), queued.directory);
        }
    }

    fn perform(&mut self, task: CopyTask) {
        match task {
            CopyTask::Named(queued) => {
                self.copy_entry(&queued.entry(), FileType::Unknown);
                Directory::done(self.run(), queued.directory);
            }
            CopyTask::Enter { directory, from, name } => {
                let entry =
                    CopyEntry { directory: &directory, from: &from, source: &name, name: &name };
                self.enter(&entry);
                Directory::done(self.run(), directory);
            }
            CopyTask::Batch { directory, from, names } => {
                self.batch(&directory, &from, names);
                Directory::done(self.run(), directory);
            }
        }
    }

    /// Copies one entry of a directory, or a source that the caller named.
    fn copy_entry(&mut self, entry: &CopyEntry<'_>, kind: FileType) {
        if self.run().go_on().is_err() {
            return;
        }
        match retry_for_descriptors(self, |walker| walker.dispatch(entry, kind), Self::close_idle) {
            Ok(()) => {
                if entry.directory.is_staged && self.run().is_checkpoint_due() {
                    entry.directory.checkpoint(self.run());
                }
                if self.worker.flush_progress_when_due() {
                    self.run().events.current(&entry.source_path());
                }
            }
            Err(failure) => self.worker.fail(entry, failure),
        }
        self.copy_again();
    }

    fn dispatch(&mut self, entry: &CopyEntry<'_>, listed: FileType) -> Attempt<()> {
        let options = self.run().options;
        let follow = options.follows(entry.named_by_caller());
        if self.is_left_out(entry, listed, follow)? {
            return Ok(());
        }
        if options.sync.is_some() && entry.name == STATE_FILE {
            return Ok(());
        }
        if is_reserved(entry.name) {
            // If this is the staging directory of a source, the error says that a copy contains itself.
            let met = entry.stat(false).ok();
            let grown = met.and_then(|stat| self.run().grown(Id::of(&stat)));
            return Err(grown.unwrap_or(CopyFailure::RefusedSource(Refusal::ReservedName)));
        }
        let real = match listed {
            FileType::Unknown => kind(&entry.stat(follow)?),
            FileType::Symlink if follow => kind(&entry.stat(follow)?),
            known => known,
        };
        if real == FileType::RegularFile && self.is_beyond_limits(entry, follow)? {
            return Ok(());
        }
        match real {
            FileType::Directory if !options.recursive => {
                Err(CopyFailure::RefusedSource(Refusal::NotRecursive))
            }
            FileType::Directory => {
                self.enqueue(entry);
                Ok(())
            }
            _ if options.becomes != Becomes::Copy => {
                link_to_source(&mut self.worker, entry, follow)
            }
            FileType::RegularFile => copy_file_entry(&mut self.worker, entry),
            FileType::Symlink => copy_symlink(&mut self.worker, entry),
            _ if options.reads_specials() => copy_file_entry(&mut self.worker, entry),
            special => copy_special(&mut self.worker, entry, special),
        }
    }

    /// Returns `true`, and counts the entry, if the caller's filter excludes it and everything below it. Sources that
    /// the caller named were filtered before.
    fn is_left_out(
        &mut self,
        entry: &CopyEntry<'_>,
        listed: FileType,
        follow: bool,
    ) -> Attempt<bool> {
        let options = self.run().options;
        let Some(filter) = options.filter.as_ref().filter(|_| !entry.named_by_caller()) else {
            return Ok(false);
        };
        let is_directory = is_directory(entry.from.open()?, entry.source, listed, follow);
        let path = entry.path_inside(options.inside.is_some());
        let left_out = filter.leaves_out(&path, is_directory);
        if left_out {
            self.worker.tally.left_out += 1;
            if options.verbose {
                self.run().events.event(&Event::LeftOut { source: &entry.source_path() });
            }
        }
        Ok(left_out)
    }

    /// Returns `true`, and counts the file, if it is skipped because of its size or age.
    fn is_beyond_limits(&mut self, entry: &CopyEntry<'_>, follow: bool) -> Attempt<bool> {
        let limits = self.run().options.limits;
        if limits.is_empty() {
            return Ok(false);
        }
        let stat = entry.stat(follow)?;
        let is_file = kind(&stat) == FileType::RegularFile;
        let is_beyond = is_file && !limits.allow(size(&stat), mtime(&stat).0);
        self.worker.tally.left_out += u64::from(is_beyond);
        Ok(is_beyond)
    }

    /// Queues a directory for an idle worker, or enters it immediately if too many are queued already.
    fn enqueue(&mut self, entry: &CopyEntry<'_>) {
        let most =
            self.run().kept.as_ref().map_or(MOST_NESTED, |kept| MOST_NESTED.min(kept.to_use()));
        let crowded = self.shared.queue.len() > MOST_WAITING && self.depth < most;
        if crowded || entry.named_by_caller() {
            self.depth += 1;
            self.enter(entry);
            self.depth -= 1;
            return;
        }
        entry.directory.expect_one_more();
        let directory = Arc::clone(entry.directory);
        let (from, name) = (entry.from.clone(), entry.name.to_owned());
        self.shared.queue.push(CopyTask::Enter { directory, from, name });
    }

    /// Copies a directory: creates the destination directory and copies the entries.
    fn enter(&mut self, entry: &CopyEntry<'_>) {
        if self.run().go_on().is_err() {
            return;
        }
        let entered =
            retry_for_descriptors(self, |walker| walker.enter_and_list(entry), Self::close_idle);
        if let Err(failure) = entered {
            self.worker.fail(entry, failure);
        }
    }

    /// Publishes the waiting files, and closes every directory that can be opened again.
    fn close_idle(&mut self) {
        self.name_waiting();
        if let Some(kept) = &self.run().kept {
            kept.close_idle();
        }
    }

    fn enter_and_list(&mut self, entry: &CopyEntry<'_>) -> Attempt<()> {
        let follow = self.run().options.follows(entry.named_by_caller());
        let flags = directory_flags(follow);
        let source = openat(entry.from.open()?, entry.source, flags, Mode::empty());
        let source = source.map_err(at_source("openat"))?;
        let mut stat = fstat(&source).map_err(at_source("fstat"))?;
        self.run().options.given.apply(&mut stat);
        let id = Id::of(&stat);
        if let Some(failure) = self.run().grown(id) {
            return Err(failure);
        }
        if follow && entry.directory.is_below(id) {
            return Err(CopyFailure::RefusedSource(Refusal::Cycle));
        }
        let directory = enter(self.run(), entry, source.as_fd(), &stat)?;
        self.worker.tally.dirs += 1;
        if directory.is_fresh {
            self.worker.report_copied(entry, None);
        }
        if directory.is_new {
            self.worker.note_copied(entry, &stat, None);
        } else {
            self.worker.note_attributes(entry, &stat, directory.differs);
        }
        let stays = self.run().options.one_file_system && stat.st_dev != directory.device;
        let address = ReopenAddress { above: entry.from.folder(), name: entry.source, flags };
        // A directory from `SourceDirectory::Named` cannot be opened again from its parent, so its descriptor must stay
        // open.
        let kept =
            self.run().kept.as_ref().filter(|_| !matches!(entry.from, SourceDirectory::Named(_)));
        let from = SourceDirectory::Listed(CachedDirectory::new(source, id, &address, kept));
        if !stays {
            self.worker.tally.seen.note(stat.st_dev);
        }
        let listed = if stays { Ok(()) } else { self.list(&directory, &from) };
        drop(from);
        if let Err(failure) = listed {
            self.worker.fail(entry, failure);
        }
        Directory::done(self.run(), directory);
        Ok(())
    }

    fn list(&mut self, directory: &Arc<Directory>, from: &SourceDirectory) -> Attempt<()> {
        let mut buffer = self.listings.pop().unwrap_or_else(listing_buffer);
        let listed = self.list_into(directory, from, &mut buffer);
        self.listings.push(buffer);
        listed
    }

    fn list_into(
        &mut self,
        directory: &Arc<Directory>,
        from: &SourceDirectory,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Attempt<()> {
        let opened = from.open()?;
        let mut batch = PackedNames::default();
        let listed = each_entry(&opened, buffer, |next| {
            let (name, kind) = (next.file_name(), next.file_type());
            // Other workers are idle, so this worker hands out the next entries in batches.
            if kind != FileType::Directory && (batch.len() > 0 || self.shared.queue.is_hungry()) {
                batch.push((kind.as_raw_mode() >> 12) as u8, name);
                if batch.len() == BATCH {
                    self.hand_out(directory, from, std::mem::take(&mut batch));
                }
                return true;
            }
            self.copy_entry(&CopyEntry { directory, from, source: name, name }, kind);
            self.run().go_on().is_ok()
        });
        self.batch(directory, from, batch);
        listed.map_err(at_source("getdents64"))
    }

    /// Copies listed entries of a directory. If another worker is idle, hands over half of the remaining entries,
    /// because even a few large files may take long.
    fn batch(
        &mut self,
        directory: &Arc<Directory>,
        from: &SourceDirectory,
        mut names: PackedNames,
    ) {
        let (mut place, mut left) = (0, names.len());
        while let Some((kind, name, next)) = names.at(place) {
            if left > 1 && self.shared.queue.is_hungry() {
                let tail = names.split_off(place, left.div_ceil(2));
                left -= tail.len();
                self.hand_out(directory, from, tail);
                continue;
            }
            let kind = FileType::from_raw_mode(u32::from(kind) << 12);
            self.copy_entry(&CopyEntry { directory, from, source: name, name }, kind);
            (place, left) = (next, left - 1);
        }
    }

    fn hand_out(&self, directory: &Arc<Directory>, from: &SourceDirectory, names: PackedNames) {
        directory.expect_one_more();
        let (directory, from) = (Arc::clone(directory), from.clone());
        self.shared.queue.push(CopyTask::Batch { directory, from, names });
    }
}
