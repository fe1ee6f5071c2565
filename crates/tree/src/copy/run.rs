//! Options, cancellation state and error list of one copy.

use rustix::{
    fs::{Gid, Stat, stat},
    process::{getegid, geteuid, getgroups},
};
use std::{
    collections::HashSet,
    ffi::CString,
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
    CopyOptions, Error, Event, Events, Fsync, Halt, Refusal,
    copy::{
        report::{MOST_ERRORS, TreeReport},
        room::FreeSpace,
        whole_sync::WholeSync,
    },
    error::CopyFailure,
    event::ProgressSum,
    fs::cached::DirectoryCache,
    identity::Id,
    names::os,
    threads::locked,
    xattrs::is_roots,
};

/// Interval between the syncs of a copy with `--fsync`.
const CHECKPOINT: Duration = Duration::from_secs(30);

/// Other processes that work in the destination at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// No other process, or only processes that locks exclude.
    #[default]
    None,
    /// Workers of a fleet write the files concurrently, on machines that a lock may not reach.
    Workers,
    /// Workers of a fleet were requested to stop, but may not have noticed it yet.
    Stragglers,
    /// Workers of a fleet link the files of its complete tree into the destination. Two workers may link the same file
    /// concurrently. The tree stays in place, so no staging directories are used. Temporary names that a killed worker
    /// left are recognized by their form.
    Linkers,
}

/// Options and shared state of one copy.
pub(crate) struct CopyRun<'r> {
    pub options: &'r CopyOptions,
    pub events: &'r dyn Events,
    pub limit: Option<RateLimit>,
    /// Source and destination directories that can be closed and opened again. `None` if the copy enters no directory.
    pub kept: Option<Arc<DirectoryCache>>,
    pub me: Me,
    pub concurrency: Concurrency,
    /// `true` if the caller named only one source.
    pub is_single: bool,
    /// In a dry run, the free space of the destination.
    pub room: Option<FreeSpace>,
    /// Paths of sources that the caller named, if an earlier source has an equal destination name.
    pub second: HashSet<CString>,
    /// The file system of the destination, if one call can sync it. Set only for trees that are to be synced.
    pub whole: Option<WholeSync>,
    /// Maximum number of files of one worker that wait for one sync.
    pub most_waiting: usize,
    // Time of the last sync of a staging directory.
    synced: Mutex<Instant>,
    // Destination directories of the sources that the caller named. A walk must not enter them.
    grown: RwLock<Vec<(Id, [PathBuf; 2])>>,
    /// Identity of the existing file that the manifest of copies will replace.
    listed_over: Option<Id>,
    /// `true` if unfinished files of this run were left for a later one.
    left_parts: AtomicBool,
    pub progress: ProgressSum,
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

/// A file or directory that keeps its temporary name.
struct Unfinished {
    path: PathBuf,
    /// `true` if the entry is in a new directory that did not have its final name yet.
    is_staged: bool,
}

/// Minimum number of directories that a walk keeps open.
pub(crate) const FEWEST_DIRECTORIES: usize = 4;

/// Divides the descriptor limit for a walk. Returns the number of threads, at most `wanted`, for which the descriptors
/// suffice. Also returns how many directories can stay open, including those in which the threads work.
pub(crate) fn share(limit: Option<u64>, wanted: usize) -> (usize, usize) {
    // `ALL`: descriptors of the whole process, such as the standard streams and the destination. `EACH`: the
    // descriptors that one thread has open at a time, which are two directories and their parents, two files, a pipe
    // and a lock. A thread can close its directories when it needs descriptors for others.
    const ALL: usize = 6;
    const EACH: usize = 10;
    // Each thread has its own path. Another thread pays off only if the ancestors on its path can stay open.
    const ROOM: usize = 40;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let left = limit.saturating_sub(ALL);
    let threads = (left / (EACH + ROOM)).clamp(1, wanted.max(1));
    (threads, left.saturating_sub((EACH - FEWEST_DIRECTORIES) * threads).max(FEWEST_DIRECTORIES))
}

/// Returns the groups to which this user may give files.
fn own_groups() -> Vec<u32> {
    let all = getgroups().unwrap_or_default();
    all.into_iter().chain([getegid()]).map(Gid::as_raw).collect()
}

/// Returns `true` if this user may give files to the group.
pub(crate) fn may_give_to(gid: u32) -> bool {
    geteuid().is_root() || own_groups().contains(&gid)
}

/// User and group of this process, as they affect new files.
#[derive(Debug)]
pub(crate) struct Me {
    // Determined on first use.
    umask: OnceLock<Option<u32>>,
    groups: OnceLock<Vec<u32>>,
    pub uid: u32,
    pub gid: u32,
    /// `true` if new files certainly belong to `uid` and `gid`, so that the copy need not read their owner.
    pub owns_what_it_makes: bool,
}

impl Me {
    /// Determines user and group. `destination` is the directory that receives all copies.
    pub fn looking_at(destination: impl std::os::fd::AsFd, options: &CopyOptions) -> Self {
        // In some cases new files get another owner. File servers map owners (root_squash), and FUSE file systems
        // choose them freely. With the mount options `grpid` and `bsdgroups`, new files get the group of their
        // directory.
        let plain = |fs: &thalweg_sys::host::FileSystem| {
            let by_directory = fs.options().split(',').any(|o| o == "grpid" || o == "bsdgroups");
            !fs.remote && !fs.name.starts_with("fuse") && !by_directory
        };
        Self {
            umask: OnceLock::new(),
            groups: OnceLock::new(),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            owns_what_it_makes: (options.preserve.owner || options.resume)
                && filesystem(destination).is_ok_and(|fs| plain(&fs)),
        }
    }

    /// Returns `true` if this user may give files to the group.
    pub fn may_give_to(&self, gid: u32) -> bool {
        self.uid == 0 || self.groups.get_or_init(own_groups).contains(&gid)
    }

    /// Returns the mode bits that the kernel clears for new files, if they can be determined.
    pub fn umask(&self) -> Option<u32> {
        *self.umask.get_or_init(|| {
            // umask(2) returns the mask only by setting a new one, which would affect all threads of the process. /proc
            // shows it.
            let mut start = [0; 256];
            let file = std::fs::File::open("/proc/self/status").ok()?;
            // The mask is on the second line, so the rest of the file is not read.
            let len = io::read(&file, &mut start).ok()?;
            let status = String::from_utf8_lossy(&start[..len]);
            let text = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
            u32::from_str_radix(text.trim(), 8).ok()
        })
    }
}

impl<'r> CopyRun<'r> {
    pub fn new(options: &'r CopyOptions, events: &'r dyn Events, me: Me) -> Self {
        Self {
            options,
            events,
            limit: options.limit.map(RateLimit::new),
            kept: None,
            me,
            concurrency: Concurrency::None,
            is_single: false,
            room: None,
            second: HashSet::new(),
            whole: None,
            most_waiting: 0,
            synced: Mutex::new(Instant::now()),
            grown: RwLock::default(),
            listed_over: options.list.as_ref().and_then(|path| Some(Id::of(&stat(path).ok()?))),
            left_parts: AtomicBool::new(false),
            progress: ProgressSum::default(),
            dropped: AtomicU64::new(0),
            halting: AtomicBool::new(false),
            problems: Mutex::default(),
            asking: Mutex::new(()),
        }
    }

    /// Returns `true` if a checkpoint is due and this caller must perform it. A checkpoint is one sync of everything
    /// copied since the last checkpoint. A power failure then loses only what was copied after the checkpoint.
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

    /// Returns an error if the copy is being stopped or the caller cancels it.
    pub fn go_on(&self) -> Result<(), Cancelled> {
        if self.is_halting() {
            return Err(Cancelled);
        }
        self.events.go_on().inspect_err(|_| self.halt(Halt::Cancelled))
    }

    /// Stops the copy. The first reason is kept.
    pub fn halt(&self, why: Halt) {
        locked(&self.problems).halted.get_or_insert(why);
        self.halting.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the copy is being stopped. Each incomplete new directory then keeps its temporary name, so
    /// that a copy with [`CopyOptions::resume`] can continue it.
    pub fn is_halting(&self) -> bool {
        self.halting.load(Ordering::Relaxed)
    }

    /// Records an unfinished file that a later run can continue.
    pub fn left_part(&self, path: impl FnOnce() -> PathBuf, is_staged: bool) {
        self.left_parts.store(true, Ordering::Relaxed);
        self.leave(Unfinished { path: path(), is_staged });
    }

    /// Returns `true` if unfinished files were left.
    pub fn has_left_parts(&self) -> bool {
        self.left_parts.load(Ordering::Relaxed)
    }

    /// Records an existing file that lost its old contents and was not completely overwritten.
    pub fn torn(&self, path: PathBuf) {
        let mut problems = locked(&self.problems);
        if problems.torn.len() < MOST_ERRORS {
            problems.torn.push(path);
        }
    }

    /// Records a new directory that keeps its temporary name.
    pub fn left_unfinished(&self, path: PathBuf) {
        self.leave(Unfinished { path, is_staged: false });
    }

    fn leave(&self, unfinished: Unfinished) {
        let mut problems = locked(&self.problems);
        if problems.unfinished.len() < MOST_ERRORS {
            problems.unfinished.push(unfinished);
        }
    }

    /// Reports a file that was not copied, and counts it.
    pub fn failed(&self, error: Error) {
        self.events.event(&Event::Failed(&error));
        self.keep(error);
    }

    /// Records the destination directory of a source that the caller named. `paths`: source and destination.
    pub fn note_grown(&self, own: Id, paths: [PathBuf; 2]) {
        self.grown.write().unwrap_or_else(PoisonError::into_inner).push((own, paths));
    }

    /// Returns a failure if `met` is the destination directory of a source that the caller named.
    pub fn grown(&self, met: Id) -> Option<CopyFailure> {
        let grown = self.grown.read().unwrap_or_else(PoisonError::into_inner);
        let (_, [source, into]) = grown.iter().find(|(own, _)| *own == met)?;
        Some(CopyFailure::IntoItself(source.clone(), into.clone()))
    }

    /// Reports a source if it is the file that the manifest would replace.
    pub fn expect_not_listed_over(&self, source: &Stat, path: impl FnOnce() -> PathBuf) {
        if self.listed_over == Some(Id::of(source)) {
            let reason = Refusal::ManifestOverSource;
            self.failed(Error::Refused { path: path(), reason });
        }
    }

    /// Reports a leftover partial file or directory for this path that the copy neither used nor removed.
    pub fn left_alone(&self, destination: impl FnOnce() -> PathBuf, left: &LeftAlone) {
        let path = destination().with_file_name(os(&left.name));
        self.events.event(&Event::LeftAlone { path: &path, why: left.why });
    }

    /// Reports a file that was copied without some attribute.
    pub fn incomplete(&self, error: Error) {
        self.events.event(&Event::Incomplete(&error));
        self.keep(error);
    }

    /// Reports attributes that the destination refused, and counts them. As with `cp`, attributes that only root may
    /// set are counted only if the user is root.
    pub fn dropped(&self, path: &dyn Fn() -> PathBuf, attributes: &[(CString, Errno)]) {
        for (name, errno) in attributes {
            if self.me.uid == 0 || !is_roots(name) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                let (destination, errno) = (&path(), *errno);
                self.events.event(&Event::AttributeDropped { destination, name, errno });
            }
        }
    }

    fn keep(&self, error: Error) {
        let mut problems = locked(&self.problems);
        problems.count += 1;
        let differs = matches!(error, Error::DataDiffer { .. } | Error::LeftDiffering { .. });
        problems.differing += u64::from(differs);
        if problems.errors.len() < MOST_ERRORS {
            problems.errors.push(error);
        }
    }

    /// Asks the caller whether an existing file may be replaced. Only one question is open at a time.
    pub fn may_replace(&self, path: &Path) -> bool {
        let _one = locked(&self.asking);
        let answer = self.go_on().is_ok() && self.events.ask(path);
        // The user may have cancelled instead of answering. If this file is the last one, only this check notices that.
        self.go_on().is_ok() && answer
    }

    /// Moves the errors into the report.
    pub fn conclude(self, report: &mut TreeReport) {
        let problems = std::mem::take(&mut *locked(&self.problems));
        report.errors = problems.errors;
        report.error_count = problems.count;
        report.attributes_dropped = self.dropped.into_inner();
        report.differing = problems.differing;
        report.halted = problems.halted;
        report.torn = problems.torn;
        // A file in a directory that keeps its temporary name has no final path to report.
        let is_hidden = |left: &Unfinished| left.is_staged && problems.halted.is_some();
        let unfinished = problems.unfinished.into_iter().filter(|left| !is_hidden(left));
        report.unfinished = unfinished.map(|left| left.path).collect();
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
