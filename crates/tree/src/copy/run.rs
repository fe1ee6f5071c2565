//! What is asked of a run, whether it goes on, and what it has to tell in the end.

use rustix::{
    fs::{Stat, stat},
    process::{getegid, geteuid},
};
use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, atomic_file::ownership::LeftAlone, rate_limit::RateLimit};
use thalweg_sys::{Errno, host::filesystem, io};

use crate::{
    CopyOptions, Error, Event, Events, Fsync, Halt, Progress, Refusal, Total,
    copy::{
        report::{MOST_ERRORS, TreeReport},
        room::Room,
        whole_sync::WholeSync,
    },
    error::Failure,
    folder::Kept,
    identity::Id,
    names::os,
};

/// How often a copy that syncs everything does so before its end.
const CHECKPOINT: Duration = Duration::from_secs(30);

/// Who else works in the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// Nobody, or somebody who keeps away by locks.
    #[default]
    None,
    /// Workers of a fleet write the same files at the same time, on machines that no lock may reach.
    Workers,
    /// Workers of a fleet that are told to stop, and perhaps did not hear it yet.
    Stragglers,
    /// Workers of a fleet give the files of its complete tree second names, perhaps two of them at once. The tree stays, so
    /// no directory is built under another name first, and what a killed one left in the way is known.
    Linkers,
}

/// The orders and the account of a run.
pub(crate) struct Run<'r> {
    pub options: &'r CopyOptions,
    pub events: &'r dyn Events,
    pub limit: Option<RateLimit>,
    /// Directories that can be given up; `None` in a run that enters none.
    pub kept: Option<Arc<Kept>>,
    pub me: Me,
    pub concurrency: Concurrency,
    /// In a dry run, the free space of the destination.
    pub room: Option<Room>,
    /// Sources that the caller named and that get the name of an earlier one.
    pub second: HashSet<CString>,
    /// For trees: the file system of the destination, if one call syncs it and something is to be synced.
    pub whole: Option<WholeSync>,
    /// How many files of one worker wait for one sync at most.
    pub most_waiting: usize,
    // When a stage was synced last.
    synced: Mutex<Instant>,
    // Destination directories that the caller's sources became: a walk must not enter them.
    grown: RwLock<Vec<(Id, [PathBuf; 2])>>,
    /// What lies where the list of the copies will be written.
    listed_over: Option<Id>,
    /// Unfinished files of this run were left for a later one.
    left_parts: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    settled_files: AtomicU64,
    settled_bytes: AtomicU64,
    dropped: AtomicU64,
    halting: AtomicBool,
    problems: Mutex<Problems>,
    asking: Mutex<()>,
}

#[derive(Default)]
struct Problems {
    errors: Vec<Error>,
    count: u64,
    differing: u64,
    halted: Option<Halt>,
    unfinished: Vec<Unfinished>,
    torn: Vec<PathBuf>,
}

/// What keeps its temporary name.
struct Unfinished {
    path: PathBuf,
    /// It lies in a new directory that had no name of its own then.
    is_staged: bool,
}

/// Directories that a walk needs open at least.
pub(crate) const FEWEST_DIRECTORIES: usize = 4;

/// Shares out descriptors for a walk: how many of the wanted threads have enough for their work, and how many
/// directories beside those they work in can stay open.
pub(crate) fn share(limit: Option<u64>, wanted: usize) -> (usize, usize) {
    // What every process has, and the destination of a run; what a thread has open at a time: two directories
    // and their parents, two files, a pipe, a lock. Of these, directories are given up as others are.
    const ALL: usize = 6;
    const EACH: usize = 10;
    // One more thread is worth it only with some room for what is above: they part, and each has its own way.
    const ROOM: usize = 40;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let left = limit.saturating_sub(ALL);
    let threads = (left / (EACH + ROOM)).clamp(1, wanted.max(1));
    (threads, left.saturating_sub((EACH - FEWEST_DIRECTORIES) * threads).max(FEWEST_DIRECTORIES))
}

/// Who we are, as far as new files are concerned.
#[derive(Debug)]
pub(crate) struct Me {
    // Looked up when it is first needed.
    umask: OnceLock<Option<u32>>,
    pub uid: u32,
    pub gid: u32,
    /// Whether new files belong to `uid` and `gid`, so that their owner need not be looked up.
    pub owns_what_it_makes: bool,
}

impl Me {
    /// Asks the kernel. `destination` is the directory everything goes to.
    pub fn looking_at(destination: impl std::os::fd::AsFd, options: &CopyOptions) -> Self {
        // Servers map owners (root_squash), FUSE invents them, and two mount options take the
        // group from the directory.
        let plain = |fs: &thalweg_sys::host::FileSystem| {
            let by_directory = fs.options().split(',').any(|o| o == "grpid" || o == "bsdgroups");
            !fs.remote && !fs.name.starts_with("fuse") && !by_directory
        };
        Self {
            umask: OnceLock::new(),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            owns_what_it_makes: (options.preserve.owner || options.resume)
                && filesystem(destination).is_ok_and(|fs| plain(&fs)),
        }
    }

    /// Bits that the kernel takes from the mode of a new file, if they can be known.
    pub fn umask(&self) -> Option<u32> {
        *self.umask.get_or_init(|| {
            // Reading the mask by umask(2) would set it, for every thread of the process.
            let mut start = [0; 256];
            let file = std::fs::File::open("/proc/self/status").ok()?;
            // The second line has it: the rest need not be read.
            let len = io::read(&file, &mut start).ok()?;
            let status = String::from_utf8_lossy(&start[..len]);
            let text = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
            u32::from_str_radix(text.trim(), 8).ok()
        })
    }
}

impl<'r> Run<'r> {
    pub fn new(options: &'r CopyOptions, events: &'r dyn Events, me: Me) -> Self {
        Self {
            options,
            events,
            limit: options.limit.map(RateLimit::new),
            kept: None,
            me,
            concurrency: Concurrency::None,
            room: None,
            second: HashSet::new(),
            whole: None,
            most_waiting: 0,
            synced: Mutex::new(Instant::now()),
            grown: RwLock::default(),
            listed_over: options.list.as_ref().and_then(|path| Some(Id::of(&stat(path).ok()?))),
            left_parts: AtomicBool::new(false),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            settled_files: AtomicU64::new(0),
            settled_bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            halting: AtomicBool::new(false),
            problems: Mutex::default(),
            asking: Mutex::new(()),
        }
    }

    /// Whether it is time to sync what is there, and this caller is the one to do it: syncing once for all that was
    /// copied in the meantime costs little, and a power cut then loses no more than that.
    pub fn is_checkpoint_due(&self) -> bool {
        if self.options.fsync != Fsync::Always {
            return false;
        }
        let Some(Ok(mut last)) = self.whole.as_ref().map(|_| self.synced.try_lock()) else {
            return false;
        };
        let is_due = last.elapsed() >= CHECKPOINT;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }

    /// Asks whether to go on: not in a run that is being stopped, and not if the caller cancels it.
    pub fn go_on(&self) -> Result<(), Cancelled> {
        if self.is_halting() {
            return Err(Cancelled);
        }
        self.events.go_on().inspect_err(|_| self.halt(Halt::Cancelled))
    }

    /// Stops the run; the first reason stays.
    pub fn halt(&self, why: Halt) {
        self.problems().halted.get_or_insert(why);
        self.halting.store(true, Ordering::Relaxed);
    }

    /// Whether the run is being stopped: a new directory that is not complete keeps its temporary
    /// name then, and waits for a run with [`CopyOptions::resume`].
    pub fn is_halting(&self) -> bool {
        self.halting.load(Ordering::Relaxed)
    }

    /// Notes an unfinished file that a later run can go on with.
    pub fn left_part(&self, path: impl FnOnce() -> PathBuf, is_staged: bool) {
        self.left_parts.store(true, Ordering::Relaxed);
        self.leave(Unfinished { path: path(), is_staged });
    }

    /// Whether unfinished files were left.
    pub fn has_left_parts(&self) -> bool {
        self.left_parts.load(Ordering::Relaxed)
    }

    /// Notes an existing file that has lost what it held and has not got all of its source.
    pub fn torn(&self, path: PathBuf) {
        let mut problems = self.problems();
        if problems.torn.len() < MOST_ERRORS {
            problems.torn.push(path);
        }
    }

    /// Notes a new directory that keeps its temporary name.
    pub fn left_unfinished(&self, path: PathBuf) {
        self.leave(Unfinished { path, is_staged: false });
    }

    fn leave(&self, unfinished: Unfinished) {
        let mut problems = self.problems();
        if problems.unfinished.len() < MOST_ERRORS {
            problems.unfinished.push(unfinished);
        }
    }

    /// Tells of a file that was not copied, and counts it.
    pub fn failed(&self, error: Error) {
        self.events.event(&Event::Failed(&error));
        self.keep(error);
    }

    /// Notes what a source that the caller named becomes; `paths`: both.
    pub fn note_grown(&self, own: Id, paths: [PathBuf; 2]) {
        self.grown.write().unwrap_or_else(PoisonError::into_inner).push((own, paths));
    }

    /// Why a walk does not enter this directory, if it is what a source that the caller named becomes.
    pub fn grown(&self, met: Id) -> Option<Failure> {
        let grown = self.grown.read().unwrap_or_else(PoisonError::into_inner);
        let (_, [source, into]) = grown.iter().find(|(own, _)| *own == met)?;
        Some(Failure::IntoItself(source.clone(), into.clone()))
    }

    /// Tells of a source whose place the list of the copies would take.
    pub fn expect_not_listed_over(&self, source: &Stat, path: impl FnOnce() -> PathBuf) {
        if self.listed_over == Some(Id::of(source)) {
            let reason = Refusal::ManifestOverSource;
            self.failed(Error::Refused { path: path(), reason });
        }
    }

    /// Reports a leftover of the copy to this path that was not used.
    pub fn left_alone(&self, destination: impl FnOnce() -> PathBuf, left: &LeftAlone) {
        let path = destination().with_file_name(os(&left.name));
        self.events.event(&Event::LeftAlone { path: &path, why: left.why });
    }

    /// Tells of a file that was copied without some attribute.
    pub fn incomplete(&self, error: Error) {
        self.events.event(&Event::Incomplete(&error));
        self.keep(error);
    }

    /// Tells of attributes that the destination refused, and counts them. As with `cp`, those that
    /// are root's to set count for root alone.
    pub fn dropped(&self, path: &dyn Fn() -> PathBuf, attributes: &[(CString, Errno)]) {
        let is_roots = |name: &CStr| {
            name.to_bytes().starts_with(b"security.") || name.to_bytes().starts_with(b"trusted.")
        };
        for (name, errno) in attributes {
            if self.me.uid == 0 || !is_roots(name) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                let (destination, errno) = (&path(), *errno);
                self.events.event(&Event::AttributeDropped { destination, name, errno });
            }
        }
    }

    fn keep(&self, error: Error) {
        let mut problems = self.problems();
        problems.count += 1;
        let differs = matches!(error, Error::DataDiffer { .. } | Error::LeftDiffering { .. });
        problems.differing += u64::from(differs);
        if problems.errors.len() < MOST_ERRORS {
            problems.errors.push(error);
        }
    }

    /// Asks whether an existing file may be replaced; one question at a time.
    pub fn may_replace(&self, path: &Path) -> bool {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.go_on().is_ok() && self.events.ask(path);
        // What came instead of an answer may be the wish to stop, and this file the last one.
        self.go_on().is_ok() && answer
    }

    /// Adds what a worker has done since it last said so, and returns how far the whole run is.
    pub fn advance(&self, done: Progress) -> Progress {
        let add = |sum: &AtomicU64, more| sum.fetch_add(more, Ordering::Relaxed) + more;
        Progress {
            files: add(&self.files, done.files),
            bytes: add(&self.bytes, done.bytes),
            settled: Total {
                files: add(&self.settled_files, done.settled.files),
                bytes: add(&self.settled_bytes, done.settled.bytes),
            },
        }
    }

    /// Moves the problems into the report.
    pub fn conclude(self, report: &mut TreeReport) {
        let problems = self.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.errors = problems.errors;
        report.error_count = problems.count;
        report.attributes_dropped = self.dropped.into_inner();
        report.differing = problems.differing;
        report.halted = problems.halted;
        report.torn = problems.torn;
        // In a directory that keeps its temporary name a file has no path to tell.
        let is_hidden = |left: &Unfinished| left.is_staged && problems.halted.is_some();
        let unfinished = problems.unfinished.into_iter().filter(|left| !is_hidden(left));
        report.unfinished = unfinished.map(|left| left.path).collect();
    }

    fn problems(&self) -> std::sync::MutexGuard<'_, Problems> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_for_few_threads_and_many_for_all() {
        assert_eq!(share(Some(16), 8), (1, 4));
        assert_eq!(share(Some(0), 8), (1, 4));
        assert_eq!(share(Some(64), 8), (1, 52));
        assert_eq!(share(Some(1024), 8), (8, 970));
        assert_eq!(share(None, 8).0, 8);
    }
}
