//! A connection of a tree fetch. It pipelines requests for several files, and stores the files in order. A large file
//! is fetched separately, so that it can be resumed.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::fs::FileType;
use thalweg_core::{Cancelled, Report, Side, buffer_pool};
use thalweg_sys::Errno;
use thalweg_tree::ChangeAction;

use super::{
    account::FetchCounters,
    asking::{self, Asking},
    change::EntryChange,
    directories::DirectoryCache,
    entry::ListedEntry,
    files::{FileDecision, WantedFile, destination},
    hash_checks::HashChecks,
    job::TreeJob,
    naming::Naming,
    nodes::ChangedNode,
    reference::{ReferenceTree, link},
    renames::TreeRenames,
    response::FileResponse,
};
use crate::{
    blocks::LEAST_DELTA,
    client::{
        FetchError, FetchProgress, FetchWatcher,
        body::book,
        connect::FetchConnection,
        deadline::NetDeadline,
        fetch::{ListedFile, fetch_listed},
        retry,
    },
    manifest::{ManifestKind, encoded},
    plans::Plans,
};

/// Largest size, in bytes, of a file that is fetched without a journal. If the process is killed, the received bytes of
/// such a file are lost. Larger files have a journal and a request of their own.
pub const LARGE: u64 = 16 << 20;
/// Number of entries that a thread takes from the list at a time, all of one directory. Two threads that create files
/// in one directory block each other.
const SOME: usize = 128;
/// Maximum number of consecutive files that end early or return 500. After more of them, the fault is the server's, and
/// the fetch stops.
const MOST_SICK: u32 = 3;
/// Buffers and pipes that a thread keeps for later files.
const SPARES: buffer_pool::Most = buffer_pool::Most { bytes: 2 << 20, pipes: 2 };

/// A thread that fetches files of the tree over one connection.
pub struct TreeWorker<'a> {
    job: &'a TreeJob<'a>,
    directories: DirectoryCache<'a>,
    reference: Option<ReferenceTree<'a>>,
    connection: Option<FetchConnection>,
    /// `true` if a file was received on this connection. The loss of such a connection is not an error, because a
    /// server may close a connection after some number of files.
    has_served: bool,
    /// Files in the order in which they are requested.
    wanted: VecDeque<WantedFile>,
    /// Files that are requested on this connection.
    asking: Asking,
    hash_checks: HashChecks,
    naming: Naming,
    large: Vec<WantedFile>,
    is_over: bool,
    /// Files that failed since the last success, although the server answered.
    sick: u32,
    report: Report,
    plans: Plans,
    resumed: u64,
}

impl<'a> TreeWorker<'a> {
    pub fn new(job: &'a TreeJob<'a>) -> Self {
        Self {
            job,
            directories: DirectoryCache::below(job.root),
            reference: job.reference.map(ReferenceTree::below),
            connection: None,
            has_served: false,
            wanted: VecDeque::new(),
            asking: Asking::for_files(job),
            hash_checks: HashChecks::new(job),
            naming: Naming::default(),
            large: Vec::new(),
            is_over: false,
            sick: 0,
            report: Report::default(),
            plans: Plans::default(),
            resumed: 0,
        }
    }

    /// Works until the list is exhausted, or the fetch stops.
    pub fn work(mut self) {
        let account = self.job.account;
        buffer_pool::keep(SPARES);
        if let Err(error) = self.work_until_complete()
            && !matches!(error, FetchError::Cancelled if account.is_halting())
        {
            account.halt(error);
        }
        self.release();
        self.naming.finish(self.job);
        account.book(self.report, self.resumed);
    }

    fn work_until_complete(&mut self) -> Result<(), FetchError> {
        let mut tries = 0;
        loop {
            self.job.account.check_cancelled()?;
            // A thread that holds a channel must not wait for another one, so requests in flight are finished first.
            let has_checks = !self.hash_checks.is_empty();
            if !has_checks {
                self.hash_checks.release();
            }
            if has_checks && self.asking.is_empty() {
                self.release();
                self.settle_hash_check(&mut tries)?;
                continue;
            }
            let may_take = !self.is_over && !has_checks && self.large.is_empty();
            if may_take && self.wanted.len() < asking::MOST {
                self.take_some()?;
                continue;
            }
            if self.wanted.is_empty() {
                match self.large.pop() {
                    Some(large) => self.bring_large(&large)?,
                    None => return Ok(()),
                }
                continue;
            }
            match self.bring_first() {
                Ok(None) => (tries, self.sick) = (0, 0),
                Ok(Some(error)) => self.put_off(error)?,
                Err(FetchError::Network { .. } | FetchError::Short { .. }) if self.has_served => {
                    self.forget_connection();
                }
                Err(error) => {
                    self.forget_connection();
                    let Some(error) = self.after(error, &mut tries)? else { continue };
                    let Some(wanted) = self.wanted.pop_front() else { return Err(error) };
                    self.miss(&wanted, error)?;
                    tries = 0;
                }
            }
        }
    }

    /// Decides whether the first file with a hash check must be fetched.
    fn settle_hash_check(&mut self, tries: &mut u32) -> Result<(), FetchError> {
        let account = self.job.account;
        let is_same = match self.hash_checks.is_first_the_same(self.job) {
            Ok(is_same) => Ok(is_same),
            Err(error) => {
                let Some(error) = self.after(error, tries)? else {
                    self.hash_checks.put_off();
                    return Ok(());
                };
                Err(error)
            }
        };
        *tries = 0;
        let Some(mut first) = self.hash_checks.pop() else { return Ok(()) };
        match is_same.and_then(|is_same| is_same.then(|| first.keep()).transpose()) {
            Ok(Some(refused)) => {
                account.refused_xattrs(refused);
                account.same(&first);
            }
            Ok(None) => {
                first.change = self.job.install.replacement(first.change.differs);
                self.want(first);
            }
            Err(error) => account.missed(&first.path, error),
        }
        Ok(())
    }

    /// Handles an error of the first file on a connection that remains usable. Queues the file again, or records that
    /// it failed.
    fn put_off(&mut self, error: FetchError) -> Result<(), FetchError> {
        let Some(mut wanted) = self.wanted.pop_front() else { return Ok(()) };
        if error.is_passing() && wanted.tries < self.job.options.retries {
            wanted.tries += 1;
            self.wanted.push_back(wanted);
            return Ok(());
        }
        self.miss(&wanted, error)
    }

    /// Gives an unused channel back, so that another caller can have it.
    fn release(&mut self) {
        self.hash_checks.release();
        if self.asking.is_empty()
            && self.connection.as_ref().is_some_and(FetchConnection::is_channel)
            && let Some(connection) = self.connection.take()
        {
            connection.release();
        }
    }

    /// Handles an error: pauses for a retry and returns `None`, or returns the error if it belongs to the file.
    fn after(&self, error: FetchError, tries: &mut u32) -> Result<Option<FetchError>, FetchError> {
        if !error.is_passing() {
            return Ok(Some(error));
        }
        *tries += 1;
        match retry::pause(*tries, self.job.options.retries, error.after()) {
            None if may_be_of_one_file(&error) => Ok(Some(error)),
            pause => self.wait_after(error, pause).map(|()| None),
        }
    }

    /// Records a file that failed. If the server cannot read a few files from its disk, the fetch continues. Returns the
    /// error if the server is gone.
    fn miss(&mut self, wanted: &WantedFile, error: FetchError) -> Result<(), FetchError> {
        if !may_be_of_one_file(&error) {
            self.job.account.missed(&wanted.path, error);
            return Ok(());
        }
        self.sick += 1;
        if self.sick > MOST_SICK || !self.reconnect() {
            self.job.account.check_cancelled()?;
            return Err(error);
        }
        self.job.account.missed_alone(&wanted.path, error);
        Ok(())
    }

    /// Connects again after a failure, if the connection is gone. Returns `false` if the server does not accept it.
    fn reconnect(&mut self) -> bool {
        let check = || self.job.account.check_cancelled();
        let deadline = NetDeadline { limit: self.job.options.stall, check: &check };
        if self.connection.is_none() {
            self.connection = self.job.connect(None, &deadline).ok();
        }
        self.connection.is_some()
    }

    fn wait_after(&self, error: FetchError, pause: Option<Duration>) -> Result<(), FetchError> {
        let Some(pause) = pause else { return Err(error) };
        let account = self.job.account;
        let report = |message: &str| account.report(message);
        Ok(retry::wait(&error, pause, report, &|| account.check_cancelled())?)
    }

    /// Drops the connection. Files that were requested and not received are requested again.
    fn forget_connection(&mut self) {
        self.connection = None;
        self.has_served = false;
        self.asking.forget();
    }

    /// Takes the next entries, creates their links, and queues the files that must be fetched.
    fn take_some(&mut self) -> Result<(), FetchError> {
        let mut taken: Vec<ListedEntry> = Vec::new();
        {
            let mut entries = self.job.entries.lock().unwrap_or_else(PoisonError::into_inner);
            while taken.len() < SOME {
                let Some(next) = entries.next_entry()? else {
                    self.is_over = true;
                    break;
                };
                let is_other =
                    taken.first().is_some_and(|first| first.directory() != next.entry.directory());
                if is_other {
                    entries.unread();
                    break;
                }
                taken.push(next.entry);
            }
        }
        for entry in taken {
            if let Err(error) = self.take(&entry) {
                self.job.account.missed(&entry.path, error);
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: &ListedEntry) -> Result<(), FetchError> {
        let (job, account) = (self.job, self.job.account);
        let directory = self.directories.open(entry.directory())?;
        match &entry.kind {
            ManifestKind::Directory(_) => {}
            ManifestKind::Link(_) | ManifestKind::Special(_) => {
                if let Some(made) = job.install.node(entry, &directory)? {
                    let ChangedNode { change, refused_xattrs } = made;
                    account.refused_xattrs(refused_xattrs);
                    let kind = entry.kind.file_type();
                    if change.action != ChangeAction::Attributes {
                        account.created_node(kind);
                    }
                    account.changed(&entry.path, kind, 0, change);
                }
            }
            ManifestKind::File(file) => match job.install.wanted(entry, file, directory)? {
                FileDecision::Unchanged => account.settled(file.size, false),
                FileDecision::Adjusted { change, refused_xattrs } => {
                    account.refused_xattrs(refused_xattrs);
                    account.settled(file.size, false);
                    account.changed(&entry.path, FileType::RegularFile, file.size, change);
                }
                FileDecision::Wanted(wanted) if wanted.needs_hash_check => {
                    self.hash_checks.push(wanted);
                }
                FileDecision::Wanted(wanted) if link(&mut self.reference, entry, &wanted)? => {
                    account.referenced();
                    let change = EntryChange::linked(false);
                    account.linked(&entry.path, FileType::RegularFile, file.size, change);
                }
                FileDecision::Wanted(wanted) => self.want(wanted),
            },
        }
        Ok(())
    }

    fn want(&mut self, wanted: WantedFile) {
        // The holes of a sparse file are found by its block sums, which need a separate request.
        let is_sparse =
            wanted.is_sparse && wanted.size >= LEAST_DELTA && self.job.options.channels.is_some();
        let is_renamed = || self.job.renames.is_some_and(|renames| renames.has(&wanted));
        if wanted.size > LARGE || is_sparse || is_renamed() {
            self.large.push(wanted);
        } else {
            self.wanted.push_back(wanted);
        }
    }

    /// Sends the next requests, and receives the first response. Returns `Ok(Some(error))` if only the first file
    /// failed and the connection remains usable, and `Err` for any other failure.
    fn bring_first(&mut self) -> Result<Option<FetchError>, FetchError> {
        let (job, account) = (self.job, self.job.account);
        let check = || account.check_cancelled();
        let deadline = NetDeadline { limit: job.options.stall, check: &check };
        let mut connection = job.connect(self.connection.take(), &deadline)?;
        connection.send(&self.asking.next(self.wanted.iter()), &deadline)?;
        let limit = job.options.head_limit(job.options.extra.wants_digest);
        let head = connection.head(&NetDeadline { limit, check: &check })?;
        let Some(wanted) = self.wanted.front() else { return Ok(None) };
        let response = FileResponse {
            connection: &mut connection,
            wanted,
            job,
            deadline,
            report: &mut self.report,
            plans: &mut self.plans,
        };
        let parked = match response.bring(&head, Naming::is_for(job))? {
            Ok(parked) => parked,
            Err(error) => {
                self.asking.answered();
                (self.connection, self.has_served) = (Some(connection), true);
                return Ok(Some(error));
            }
        };
        match (self.wanted.pop_front(), parked) {
            (Some(wanted), Some(file)) => self.naming.push(wanted, file),
            (Some(wanted), None) => account.fetched(&wanted),
            (None, _) => {}
        }
        if self.naming.is_full() {
            self.naming.finish(job);
        }
        self.asking.answered();
        if head.keeps_alive() {
            self.has_served = true;
            self.connection = Some(connection);
        } else {
            self.forget_connection();
        }
        Ok(None)
    }

    /// Fetches a file with its own request and a journal.
    fn bring_large(&mut self, wanted: &WantedFile) -> Result<(), FetchError> {
        // A large file may take long, so waiting files are published first.
        self.naming.finish(self.job);
        self.release();
        let (job, account) = (self.job, self.job.account);
        let destination = match destination(wanted) {
            Ok(destination) => destination,
            Err(error) => {
                account.missed(&wanted.path, error);
                return Ok(());
            }
        };
        let path = encoded(Path::new(OsStr::from_bytes(&wanted.path)));
        let kept = job.install.kept(&wanted.path);
        let base = job.renames.and_then(|renames| renames.take(wanted));
        let may_continue_base =
            wanted.replaces.is_none() && job.renames.is_some_and(TreeRenames::has_any);
        let listed = ListedFile { kept, base: base.as_ref(), may_continue_base, ..wanted.listed() };
        let watcher = LargeFileWatcher { account, before: Mutex::new(None) };
        let target = job.base.below(&path);
        match fetch_listed(&target, destination, job.options, &watcher, Some(&listed)) {
            Ok(fetched) => {
                account.fetched(wanted);
                self.resumed += fetched.resumed;
                self.job.account.refused_xattrs(fetched.refused_xattrs);
                self.sick = 0;
                book(&mut self.report, fetched.report);
                Ok(())
            }
            Err(failed) => {
                book(&mut self.report, failed.report);
                self.forget_connection();
                self.miss(wanted, failed.error)
            }
        }
    }
}

/// Returns `true` if an error that persists over all retries may concern one file: the server answered, but did not
/// send what it had announced.
fn may_be_of_one_file(error: &FetchError) -> bool {
    match error {
        FetchError::Short { .. } | FetchError::Status { status: 500, .. } => true,
        FetchError::Moved(error) => error.side == Side::Source && error.errno == Errno::CONNRESET,
        _ => false,
    }
}

/// Watcher of one large file of a tree.
struct LargeFileWatcher<'a> {
    account: &'a FetchCounters<'a>,
    /// Bytes of the file at the last report.
    before: Mutex<Option<u64>>,
}

impl FetchWatcher for LargeFileWatcher<'_> {
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let more = now.there.saturating_sub(before.unwrap_or(now.resumed));
        *before = Some(now.there);
        self.account.moved(more)
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        self.account.check_cancelled()
    }

    fn report(&self, message: &str) {
        self.account.report(message);
    }
}
