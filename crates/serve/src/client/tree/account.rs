//! Shared counters of all connections of a tree fetch, and the error that stops them all.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use rustix::fs::FileType;
use thalweg_core::{
    Cancelled, Report, Side,
    atomic_file::{CallFailed, DestinationError},
    cadence::PROGRESS_FLUSH,
};
use thalweg_sys::Errno;
use thalweg_tree::{ChangeAction, Progress, SyncChange, Total};

use super::{
    change::EntryChange,
    files::WantedFile,
    options::TreeWatcher,
    outcome::{Missed, TreeFetched},
};
use crate::client::{FetchError, body::book};

/// Largest number of failed entries that are kept for the report.
pub const MOST_REPORTED: usize = 100;

/// Counters of a tree fetch, and the error that stops it.
pub struct FetchCounters<'a> {
    watcher: &'a dyn TreeWatcher,
    halting: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    settled_files: AtomicU64,
    settled_bytes: AtomicU64,
    links: AtomicU64,
    specials: AtomicU64,
    unchanged: AtomicU64,
    created: AtomicU64,
    referenced: AtomicU64,
    changed: AtomicU64,
    refused_xattrs: AtomicU64,
    /// `true` if the watcher receives each change.
    is_sync: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    reported_at: Instant,
    missed: Vec<Missed>,
    missed_count: u64,
    later: u64,
    halted: Option<FetchError>,
    report: Report,
    resumed: u64,
}

impl<'a> FetchCounters<'a> {
    pub fn new(watcher: &'a dyn TreeWatcher, is_sync: bool) -> Self {
        let inner = Inner {
            reported_at: Instant::now(),
            missed: Vec::new(),
            missed_count: 0,
            later: 0,
            halted: None,
            report: Report::default(),
            resumed: 0,
        };
        Self {
            watcher,
            halting: AtomicBool::new(false),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            settled_files: AtomicU64::new(0),
            settled_bytes: AtomicU64::new(0),
            links: AtomicU64::new(0),
            specials: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            created: AtomicU64::new(0),
            referenced: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            refused_xattrs: AtomicU64::new(0),
            is_sync,
            inner: Mutex::new(inner),
        }
    }

    /// Returns an error if the fetch was cancelled or stopped.
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        if self.halting.load(Ordering::Relaxed) {
            Err(Cancelled)
        } else {
            self.watcher.check_cancelled()
        }
    }

    /// Returns `true` if an error has stopped the fetch.
    pub fn is_halting(&self) -> bool {
        self.halting.load(Ordering::Relaxed)
    }

    /// Stops all connections. Keeps only the first error.
    pub fn halt(&self, why: FetchError) {
        self.inner().halted.get_or_insert(why);
        self.halting.store(true, Ordering::Relaxed);
    }

    /// Adds received bytes, and reports progress if it is due.
    pub fn moved(&self, bytes: u64) -> Result<(), Cancelled> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_due = {
            let mut inner = self.inner();
            let is_due = inner.reported_at.elapsed() >= PROGRESS_FLUSH;
            if is_due {
                inner.reported_at = Instant::now();
            }
            is_due
        };
        if is_due {
            self.watcher.progress(self.progress())?;
        }
        self.check_cancelled()
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Progress {
            files: get(&self.files),
            bytes: get(&self.bytes),
            settled: Total { files: get(&self.settled_files), bytes: get(&self.settled_bytes) },
        }
    }

    /// Records a file as processed: `came` is `true` if it was fetched, `false` if it was already present.
    pub fn settled(&self, size: u64, came: bool) {
        self.settled_files.fetch_add(1, Ordering::Relaxed);
        self.settled_bytes.fetch_add(size, Ordering::Relaxed);
        let count = if came { &self.files } else { &self.unchanged };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Records files that exist as listed.
    pub fn unchanged(&self, total: Total) {
        self.settled_files.fetch_add(total.files, Ordering::Relaxed);
        self.settled_bytes.fetch_add(total.bytes, Ordering::Relaxed);
        self.unchanged.fetch_add(total.files, Ordering::Relaxed);
    }

    /// Records a file that was fetched.
    pub fn fetched(&self, wanted: &WantedFile) {
        self.settled(wanted.size, true);
        self.changed(&wanted.path, FileType::RegularFile, wanted.size, wanted.change);
    }

    /// Records a file with the listed content. Its attributes may have changed.
    pub fn same(&self, file: &WantedFile) {
        self.settled(file.size, false);
        let differs = file.change.differs;
        if differs.any() {
            let change = EntryChange::adjusted(differs);
            self.changed(&file.path, FileType::RegularFile, file.size, change);
        }
    }

    /// Records another name (hard link) of a file, symbolic link or special file.
    pub fn linked(&self, path: &[u8], kind: FileType, size: u64, change: EntryChange) {
        match kind {
            FileType::RegularFile => self.settled(size, true),
            kind => self.created_node(kind),
        }
        self.changed(path, kind, size, change);
    }

    /// Counts a symbolic link or special file that was created or replaced.
    pub fn created_node(&self, kind: FileType) {
        let count = if kind == FileType::Symlink { &self.links } else { &self.specials };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new file that is, or would be, a hard link to a file of an earlier snapshot.
    pub fn referenced(&self) {
        self.referenced.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a change of an entry.
    pub fn changed(&self, path: &[u8], kind: FileType, size: u64, change: EntryChange) {
        let EntryChange { action, differs, is_linked } = change;
        let count = if action == ChangeAction::Create { &self.created } else { &self.changed };
        count.fetch_add(1, Ordering::Relaxed);
        if self.is_sync {
            let path = Path::new(OsStr::from_bytes(path));
            self.watcher.changed(&SyncChange { path, action, kind, is_linked, size, differs });
        }
    }

    /// Adds extended attributes that the file system of the destination refused.
    pub fn refused_xattrs(&self, number: u64) {
        self.refused_xattrs.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the number of entries that failed.
    pub fn missed_count(&self) -> u64 {
        self.inner().missed_count
    }

    /// Returns the number of entries that were created.
    pub fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// Records an entry that failed. An error that would affect every other entry stops the fetch.
    pub fn missed(&self, path: &[u8], error: FetchError) {
        if stops_all(&error) { self.halt(error) } else { self.missed_alone(path, error) }
    }

    /// Records a failed entry without stopping the fetch.
    pub fn missed_alone(&self, path: &[u8], error: FetchError) {
        let mut inner = self.inner();
        inner.missed_count += 1;
        inner.later += u64::from(may_come_later(&error));
        if inner.missed.len() < MOST_REPORTED {
            inner.missed.push(Missed { path: path.to_owned(), error });
        }
    }

    /// Adds the bytes that a connection has moved.
    pub fn book(&self, report: Report, resumed: u64) {
        let mut inner = self.inner();
        book(&mut inner.report, report);
        inner.resumed += resumed;
    }

    /// Passes a message for the user to the watcher.
    pub fn report(&self, message: &str) {
        self.watcher.report(message);
    }

    /// Returns the totals.
    pub fn sum(self) -> TreeFetched {
        let inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        TreeFetched {
            files: self.files.into_inner(),
            links: self.links.into_inner(),
            specials: self.specials.into_inner(),
            unchanged: self.unchanged.into_inner(),
            created: self.created.into_inner(),
            referenced: self.referenced.into_inner(),
            changed: self.changed.into_inner(),
            refused_xattrs: self.refused_xattrs.into_inner(),
            missed: inner.missed,
            missed_count: inner.missed_count,
            later: inner.later,
            resumed: inner.resumed,
            report: inner.report,
            halted: inner.halted,
            ..TreeFetched::default()
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if a later run of the same command may fetch the entry: the server has another version by now, cannot
/// read the file at the moment, or has no permission to read it.
fn may_come_later(error: &FetchError) -> bool {
    let is_shut = matches!(error, FetchError::Shut | FetchError::Status { status: 403, .. });
    is_shut
        || matches!(error, FetchError::OutOfDate(_) | FetchError::Changing)
        || error.is_passing()
}

/// Returns `true` if every other entry would fail with the same error.
fn stops_all(error: &FetchError) -> bool {
    let errno = match error {
        FetchError::Cancelled
        | FetchError::Untrusted { .. }
        | FetchError::Remote { .. }
        | FetchError::Ended(_)
        | FetchError::Unsupported(_)
        | FetchError::Usage(_) => {
            return true;
        }
        FetchError::Moved(error) if error.side != Side::Source => error.errno,
        FetchError::Destination(DestinationError::Call(CallFailed { errno, .. })) => *errno,
        error => return error.is_passing(),
    };
    matches!(
        errno,
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO | Errno::MFILE | Errno::NFILE
    )
}
