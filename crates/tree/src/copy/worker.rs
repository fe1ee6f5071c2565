//! A thread of a run: takes work from the queue, lists directories, sends every entry to the code
//! for its kind.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, fstat, openat, statat};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::fd::AsFd,
    path::Path,
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};
use thalweg_core::atomic_file::name::is_reserved;
use thalweg_sys::Errno;

use crate::{
    Becomes, Event, Halt, Progress, Refusal, Skip,
    copy::{
        contents::{contest::Known, small::single},
        directory::{Directory, error_at},
        leaf::{Leaf, Origin},
        report::Tally,
        run::Run,
        task::Task,
    },
    error::{Attempt, Failure, at_source},
    folder::{Address, Folder},
    identity::{Id, kind},
    left_out::Met,
    listing::listing_buffer,
    names::os,
    queue::Names,
};

/// One worker of a run.
pub(crate) struct Worker<'r> {
    pub run: &'r Run<'r>,
    pub tally: Tally,
    /// One buffer for all files.
    pub buffer: Vec<u8>,
    // Buffers of getdents that are not in use.
    listings: Vec<Vec<MaybeUninit<u8>>>,
    /// Files without a name cannot be had here.
    pub names_all: bool,
    /// The file that the kernel would not clone.
    pub declined: Option<Id>,
    /// How small files go, as far as it is known here.
    pub known: Known,
    // Done since it was told last: told now and then, as all workers add to the same two numbers.
    untold: Progress,
    told: Instant,
    // Bytes of the file in hand that are counted as settled.
    of_file: u64,
    depth: usize,
}

/// Names handed to an idle worker at a time.
const BATCH: usize = 64;
// Directories that may wait before a worker enters them on the spot instead: what bounds memory
// where a directory holds a million directories.
const MOST_WAITING: usize = 1 << 12;
// How deep on the spot before they have to wait all the same: what bounds the stack.
const MOST_NESTED: usize = 32;
/// How often something is tried again for which there was no descriptor, and how soon.
const TRIES: usize = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// How often progress is told.
const TELL: Duration = Duration::from_millis(50);

impl<'r> Worker<'r> {
    /// Books a file, if a list is wanted.
    pub fn list_file(&mut self, leaf: &Leaf<'_>) {
        if self.run.options.list {
            let names = leaf.directory.paths.names();
            let names = names.into_iter().chain([leaf.name]).map(CStr::to_bytes);
            self.tally.listed.push(names.collect::<Vec<_>>().join(&b'/'));
        }
    }

    pub fn new(run: &'r Run<'r>) -> Self {
        Self {
            run,
            tally: Tally::default(),
            buffer: Vec::new(),
            listings: Vec::new(),
            names_all: false,
            declined: None,
            known: Known::default(),
            untold: Progress::default(),
            told: Instant::now(),
            of_file: 0,
            depth: 0,
        }
    }

    /// Works until there is no work.
    pub fn work(mut self) -> Tally {
        while let Some((task, busy)) = self.run.queue.next() {
            self.perform(task);
            drop(busy);
        }
        self.tell_now();
        self.tally
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Named { directory, from, source, name } => {
                let leaf =
                    Leaf { directory: &directory, from: &from, source: &source, name: &name };
                self.entry(&leaf, FileType::Unknown);
                Directory::done(self.run, directory);
            }
            Task::Enter { directory, from, name } => {
                let leaf = Leaf { directory: &directory, from: &from, source: &name, name: &name };
                self.enter(&leaf);
                Directory::done(self.run, directory);
            }
            Task::Batch { directory, from, names } => {
                for (kind, name) in names.iter() {
                    let leaf = Leaf { directory: &directory, from: &from, source: name, name };
                    self.entry(&leaf, FileType::from_raw_mode(u32::from(kind) << 12));
                }
                Directory::done(self.run, directory);
            }
        }
    }

    /// Copies one entry of a directory, or something that the caller named.
    fn entry(&mut self, leaf: &Leaf<'_>, kind: FileType) {
        if self.run.go_on().is_err() {
            return;
        }
        let mut tries = 0..TRIES;
        let done = loop {
            match self.dispatch(leaf, kind) {
                Err(failure) if failure.is_for_descriptors() && tries.next().is_some() => {
                    self.make_descriptors_free();
                }
                answer => break answer,
            }
        };
        match done {
            Ok(()) => {
                if self.tell() {
                    self.run.events.current(&leaf.source_path());
                }
            }
            Err(failure) => self.fail(leaf, failure),
        }
    }

    fn dispatch(&mut self, leaf: &Leaf<'_>, listed: FileType) -> Attempt<()> {
        let options = self.run.options;
        let follow = options.follows(leaf.named_by_caller());
        if self.is_left_out(leaf, listed, follow)? {
            return Ok(());
        }
        if is_reserved(leaf.name) {
            return Err(Failure::RefusedSource(self.why_reserved(leaf)?));
        }
        let real = match listed {
            FileType::Unknown => look(leaf, follow)?,
            FileType::Symlink if follow => look(leaf, follow)?,
            known => known,
        };
        match real {
            FileType::Directory if !options.recursive => {
                Err(Failure::RefusedSource(Refusal::NotRecursive))
            }
            FileType::Directory => {
                self.enqueue(leaf);
                Ok(())
            }
            _ if options.becomes != Becomes::Copy => self.link_to_source(leaf, follow),
            FileType::RegularFile => self.file(leaf),
            FileType::Symlink => self.symlink(leaf),
            _ if options.reads_specials() => self.file(leaf),
            special => self.special(leaf, special),
        }
    }

    /// Why something with the name of unfinished work is not copied: it may be what its source becomes.
    fn why_reserved(&self, leaf: &Leaf<'_>) -> Attempt<Refusal> {
        let grown = self.run.grown.read().unwrap_or_else(PoisonError::into_inner);
        let into = match statat(leaf.from.open()?, leaf.source, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if grown.contains(&Id::of(&stat)) => leaf.destination_path(),
            _ => return Ok(Refusal::ReservedName),
        };
        Ok(Refusal::IntoItself(into))
    }

    /// Whether the caller's filter leaves an entry out, with all below it; then it is booked. Of
    /// the sources that the caller named it was asked before.
    fn is_left_out(&mut self, leaf: &Leaf<'_>, listed: FileType, follow: bool) -> Attempt<bool> {
        let options = self.run.options;
        if options.filter.is_none() || leaf.named_by_caller() {
            return Ok(false);
        }
        let from = leaf.from.open()?;
        let entry = Met { at: from.as_fd(), name: leaf.source, listed, follow };
        let path = || leaf.path_inside(options.inside.is_some());
        let left_out = options.leaves_out_entry(&entry, path);
        if left_out {
            self.tally.left_out += 1;
            if options.verbose {
                self.run.events.event(&Event::LeftOut { source: &leaf.source_path() });
            }
        }
        Ok(left_out)
    }

    /// Leaves a directory to whoever is free, or enters it at once if too many wait already.
    fn enqueue(&mut self, leaf: &Leaf<'_>) {
        let most =
            self.run.kept.as_ref().map_or(MOST_NESTED, |kept| MOST_NESTED.min(kept.to_use()));
        let crowded = self.run.queue.len() > MOST_WAITING && self.depth < most;
        if crowded || leaf.named_by_caller() {
            self.depth += 1;
            self.enter(leaf);
            self.depth -= 1;
            return;
        }
        leaf.directory.expect_one_more();
        let directory = Arc::clone(leaf.directory);
        let (from, name) = (leaf.from.clone(), leaf.name.to_owned());
        self.run.queue.push(Task::Enter { directory, from, name });
    }

    /// Copies a directory: makes its counterpart and goes through its entries.
    fn enter(&mut self, leaf: &Leaf<'_>) {
        if self.run.go_on().is_err() {
            return;
        }
        let mut tries = 0..TRIES;
        let entered = loop {
            match self.enter_and_list(leaf) {
                Err(failure) if failure.is_for_descriptors() && tries.next().is_some() => {
                    self.make_descriptors_free();
                }
                answer => break answer,
            }
        };
        if let Err(failure) = entered {
            self.fail(leaf, failure);
        }
    }

    /// Gives up every directory that can be opened again, and lets others come to an end: it may be their
    /// descriptors that are missing, or another program's.
    fn make_descriptors_free(&self) {
        if let Some(kept) = &self.run.kept {
            kept.give_up();
        }
        thread::sleep(BETWEEN_TRIES);
    }

    fn enter_and_list(&mut self, leaf: &Leaf<'_>) -> Attempt<()> {
        let follow = self.run.options.follows(leaf.named_by_caller());
        let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | no_follow;
        let source = openat(leaf.from.open()?, leaf.source, flags, Mode::empty());
        let source = source.map_err(at_source("openat"))?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        let id = Id::of(&stat);
        if self.run.grown.read().unwrap_or_else(PoisonError::into_inner).contains(&id) {
            let into = leaf.destination_path();
            return Err(Failure::RefusedSource(Refusal::IntoItself(into)));
        }
        if follow && leaf.directory.is_below(id) {
            return Err(Failure::RefusedSource(Refusal::Cycle));
        }
        let directory = Directory::enter(self.run, leaf, source.as_fd(), &stat)?;
        self.tally.dirs += 1;
        if directory.is_fresh {
            self.tell_copied(leaf, None);
        }
        let stays = self.run.options.one_file_system && stat.st_dev != directory.device;
        let address = Address { above: leaf.from.folder(), name: leaf.source, flags };
        // By a path that ends in another directory it would not be found.
        let kept = self.run.kept.as_ref().filter(|_| !matches!(leaf.from, Origin::Named(_)));
        let from = Origin::Listed(Folder::new(source, id, &address, kept));
        let listed = if stays { Ok(()) } else { self.list(&directory, &from) };
        drop(from);
        if let Err(failure) = listed {
            self.fail(leaf, failure);
        }
        Directory::done(self.run, directory);
        Ok(())
    }

    fn list(&mut self, directory: &Arc<Directory>, from: &Origin) -> Attempt<()> {
        let mut buffer = self.listings.pop().unwrap_or_else(listing_buffer);
        let listed = self.list_into(directory, from, &mut buffer);
        self.listings.push(buffer);
        listed
    }

    fn list_into(
        &mut self,
        directory: &Arc<Directory>,
        from: &Origin,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Attempt<()> {
        let opened = from.open()?;
        let mut entries = RawDir::new(&opened, buffer);
        let mut batch = Names::default();
        let mut failed = Ok(());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    failed = Err(Failure::Source("getdents64", errno));
                    break;
                }
            };
            let (name, kind) = (entry.file_name(), entry.file_type());
            if name == c"." || name == c".." {
                continue;
            }
            // Others wait: let them have the next entries of this directory, some at a time.
            if kind != FileType::Directory && (batch.len() > 0 || self.run.queue.is_hungry()) {
                batch.push((kind.as_raw_mode() >> 12) as u8, name);
                if batch.len() == BATCH {
                    self.hand_out(directory, from, std::mem::take(&mut batch));
                }
                continue;
            }
            self.entry(&Leaf { directory, from, source: name, name }, kind);
            if self.run.go_on().is_err() {
                break;
            }
        }
        for (kind, name) in batch.iter() {
            let kind = FileType::from_raw_mode(u32::from(kind) << 12);
            self.entry(&Leaf { directory, from, source: name, name }, kind);
        }
        failed
    }

    fn hand_out(&self, directory: &Arc<Directory>, from: &Origin, names: Names) {
        directory.expect_one_more();
        let (directory, from) = (Arc::clone(directory), from.clone());
        self.run.queue.push(Task::Batch { directory, from, names });
    }

    /// Tells of a failure; a full destination ends the run.
    pub fn fail(&mut self, leaf: &Leaf<'_>, failure: Failure) {
        if matches!(failure, Failure::Cancelled) {
            return;
        }
        let full = failure.ends_the_run();
        self.run.failed(error_at(leaf, failure));
        if full {
            self.run.halt(Halt::Full);
        }
    }

    /// Tells of a file that is copied but for some attribute.
    pub fn incomplete(&self, leaf: &Leaf<'_>, failure: Failure) {
        self.run.incomplete(error_at(leaf, failure));
    }

    /// Tells of something copied, if anybody wants to hear it.
    pub fn tell_copied(&self, leaf: &Leaf<'_>, backup: Option<&CStr>) {
        if !self.run.options.verbose {
            return;
        }
        let destination = leaf.destination_path();
        let backup = backup.map(|name| destination.with_file_name(os(name)));
        self.run.events.event(&Event::Copied {
            source: &leaf.source_path(),
            destination: &destination,
            backup: backup.as_deref(),
        });
    }

    /// Tells of a file that is written into as it cannot be replaced.
    pub fn tell_written_into(&self, leaf: &Leaf<'_>, refusal: Failure) {
        if self.run.options.verbose {
            let destination = &leaf.destination_path();
            let refusal = &error_at(leaf, refusal);
            self.run.events.event(&Event::WrittenInto { destination, refusal });
        }
    }

    /// Books a file that was left as it was.
    pub fn skip(&mut self, leaf: &Leaf<'_>, reason: Skip) {
        self.tally.skipped += 1;
        if self.run.options.verbose {
            let destination: &Path = &leaf.destination_path();
            self.run.events.event(&Event::Skipped { destination, reason });
        }
    }

    /// Counts bytes that have moved, and keeps the limit on their rate.
    pub fn moved(&mut self, bytes: u64) {
        self.untold.bytes += bytes;
        self.untold.settled.bytes += bytes;
        self.of_file += bytes;
        let run = self.run;
        if let Some(limit) = &run.limit {
            // What is cancelled is told by the next question.
            let _ = limit.keep(bytes, || run.go_on());
        }
    }

    /// Counts a file that is whole.
    pub fn finished_file(&mut self) {
        self.untold.files += 1;
    }

    /// Begins a file: what is moved from now on is its own.
    pub fn take_up(&mut self, leaf: &Leaf<'_>, size: u64) {
        self.of_file = 0;
        // It may be all there is to tell of for long.
        if size > single() as u64 {
            self.run.events.current(&leaf.source_path());
        }
    }

    /// A source file is dealt with: also what was not moved of it counts as settled.
    pub fn settle(&mut self, size: u64) {
        self.untold.settled.files += 1;
        // More than its size was counted of a file that grew; the total knows nothing of that.
        self.untold.settled.bytes += size.saturating_sub(self.of_file);
        self.of_file = 0;
    }

    /// Tells how far the run is, not too often; whether it did.
    pub fn tell(&mut self) -> bool {
        let due = self.told.elapsed() >= TELL;
        if due {
            self.tell_now();
        }
        due
    }

    fn tell_now(&mut self) {
        self.told = Instant::now();
        let progress = self.run.advance(std::mem::take(&mut self.untold));
        self.run.events.progress(progress);
    }
}

fn look(leaf: &Leaf<'_>, follow: bool) -> Attempt<FileType> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = statat(leaf.from.open()?, leaf.source, flags);
    stat.map(|stat| kind(&stat)).map_err(at_source("newfstatat"))
}
