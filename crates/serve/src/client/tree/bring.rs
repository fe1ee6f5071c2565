//! The steps of a tree fetch, in order.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, atomic::AtomicBool},
    time::Instant,
};

use rustix::fs::{FileType, fstat};
use thalweg_core::{
    Cancelled, End, Report,
    atomic_file::{CallFailed, Fsync, failed},
    quantity,
};
use thalweg_sys::{Errno, host::may_fail_at_close, io, usage::Usage};
use thalweg_tree::{
    Total,
    install::{WholeSync, remove_leftovers},
    on_threads,
};

use super::{
    account::FetchCounters,
    change::EntryChange,
    deletion::delete,
    directories::{DirectoryCache, TreeDirectory},
    entry::ListedEntry,
    files::{InstallPolicy, compare_directory},
    hard_links::link_names,
    job::TreeJob,
    list::EntryList,
    options::{TreeOptions, TreeWatcher},
    outcome::TreeFetched,
    place::{TreeDestination, TreeRoot},
    preview::{PreviewRoots, preview},
    reference,
    store::{EntryStore, StoredEntry, StoredState},
    survey::{SurveyedList, TreeSurvey},
    worker::TreeWorker,
};
use crate::{
    client::{
        FetchError, FetchOptions, FetchUrl,
        ask::ask,
        body::ResponseBody,
        connect::FetchConnection,
        deadline::{CancelCheck, NetDeadline},
        head::ResponseHead,
        peer,
        resume::FileRequest,
        retry,
    },
    manifest::{DirectoryContents, ListRequest, MEDIA_TYPE, ManifestKind},
};

/// Fetches the directory at `target` into `place`. If it returns an error, nothing was started.
pub fn fetch_tree(
    target: &FetchUrl,
    place: TreeDestination,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<TreeFetched, FetchError> {
    let (began, usage) = (Instant::now(), Usage::now_process());
    let mut fetched = bring(target, place, options, watcher)?;
    fetched.report.wall = began.elapsed();
    fetched.report.cpu = Usage::now_process().since(&usage).cpu();
    Ok(fetched)
}

fn bring(
    target: &FetchUrl,
    place: TreeDestination,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<TreeFetched, FetchError> {
    let reference = options.reference.as_deref().map(reference::open).transpose()?;
    let reference = reference.as_ref().map(AsFd::as_fd);
    let list = ReceivedList::take_in(target, &place, options, watcher)?;
    let ReceivedList { found, base, .. } = &list;
    let totals = found.check.totals;
    let files = found.check.files - found.skipped.files;
    watcher.total(Total { files, bytes: totals.bytes - found.skipped.bytes });
    if let Some(sync) = options.sync.as_ref().filter(|sync| sync.dry_run) {
        let roots =
            PreviewRoots { destination: place.existing(), beside: place.beside(), reference };
        let mut fetched = only_look(&list, target, roots, options, watcher)?;
        found.count_missing(&mut fetched);
        if place.existing().is_some() {
            fetched.deletion =
                delete(&list.list, found.filter.of_deletion(), sync, &fetched, watcher)?;
        }
        return Ok(fetched);
    }
    let root = place.begin(&stage_name(target, options))?;
    if let TreeRoot::Stage(stage) = &root
        && let Some(left) = stage.left_alone()
    {
        watcher.report(&format!("warning: {left}"));
    }
    let whole = WholeSync::of(root.fd());
    let account = FetchCounters::new(watcher, options.sync.is_some());
    let install = install_policy(&root, options, whole.is_some());
    let (whole, counters) = (whole.as_ref(), &account);
    counters.unchanged(found.unchanged);
    found.filter.report(counters);
    let build = TreeBuild { list: found, root: &root, reference, install, whole, counters };
    if let Err(error) = build.run(base, target, options) {
        account.halt(error);
    }
    let _ = watcher.progress(account.progress());
    let mut fetched = account.sum();
    found.count_missing(&mut fetched);
    if let Some(sync) = options.sync.as_ref().filter(|_| !root.is_staged())
        && fetched.halted.is_none()
    {
        fetched.deletion = delete(&list.list, found.filter.of_deletion(), sync, &fetched, watcher)?;
    }
    if fetched.halted.is_some() {
        fetched.kept = root.leave()?;
    } else {
        match publish(root, found, install, whole, options.files.fsync) {
            Ok(refused) => fetched.refused_xattrs += refused,
            Err(error) => fetched.halted = Some(error),
        }
    }
    Ok(fetched)
}

/// Returns the name under which a later run finds the staging directory. A run that copies links does not continue with
/// their targets.
fn stage_name(target: &FetchUrl, options: &TreeOptions) -> String {
    let copy_links = options.list.copy_links;
    let request = ListRequest { copy_links, ..ListRequest::default() };
    if copy_links { target.manifest(&request).to_string() } else { target.to_string() }
}

/// Reports the changes of a sync.
fn only_look(
    list: &ReceivedList,
    target: &FetchUrl,
    roots: PreviewRoots<'_>,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<TreeFetched, FetchError> {
    let ReceivedList { found, base, .. } = list;
    let account = FetchCounters::new(watcher, true);
    account.unchanged(found.unchanged);
    found.filter.report(&account);
    let install = comparison_policy(options);
    let files = options_of_one(&options.files, install);
    let job = TreeJob {
        base,
        is_own: base.is_beside(target),
        options: &files,
        install,
        root: roots.beside,
        reference: None,
        entries: Mutex::new(found.entries.entries()),
        account: &account,
        whole: None,
        has_digests: AtomicBool::new(false),
    };
    preview(found, roots, &job)?;
    drop(job);
    Ok(account.sum())
}

/// Returns the policy for comparisons with an existing directory, which create nothing.
fn comparison_policy(options: &TreeOptions) -> InstallPolicy<'_> {
    let is_dry_run = options.sync.as_ref().is_some_and(|sync| sync.dry_run);
    InstallPolicy {
        is_fresh: false,
        is_staged: false,
        owner: options.owner,
        hard_links: options.hard_links,
        all_links: options.all_links,
        by_hash: options.by_hash,
        verify: options.files.verify && !is_dry_run,
        xattrs: options.list.xattrs,
        is_synced_whole: false,
        fsync: Fsync::Never,
        over_others: options.sync.is_some(),
        close_may_fail: false,
        kept: None,
    }
}

fn publish(
    root: TreeRoot,
    list: &SurveyedList,
    install: InstallPolicy<'_>,
    whole: Option<&WholeSync>,
    fsync: Fsync,
) -> Result<u64, FetchError> {
    match list.directories.entries().next_entry()? {
        Some(top) => {
            let attributes = install.attributes(&top.entry.meta, &top.entry.xattrs);
            root.publish(&attributes, whole, fsync)
        }
        None => Err(FetchError::broken("the list of files is empty")),
    }
}

fn install_policy<'a>(
    root: &TreeRoot,
    options: &'a TreeOptions,
    is_synced_whole: bool,
) -> InstallPolicy<'a> {
    // The names in a staging directory are not visible before all of it is synced.
    let is_synced_later = root.is_staged() && is_synced_whole;
    InstallPolicy {
        is_fresh: root.is_fresh(),
        is_staged: root.is_staged(),
        owner: options.owner,
        hard_links: options.hard_links,
        all_links: options.all_links,
        by_hash: options.by_hash,
        verify: options.files.verify,
        xattrs: options.list.xattrs,
        is_synced_whole,
        fsync: if is_synced_later { Fsync::Never } else { options.files.fsync },
        over_others: options.sync.is_some() && !root.is_staged(),
        close_may_fail: may_fail_at_close(root.fd()).unwrap_or(true),
        kept: options
            .sync
            .as_ref()
            .and_then(|sync| sync.kept.as_deref())
            .filter(|_| !root.is_staged()),
    }
}

/// A list that was received completely and compared with the destination.
struct ReceivedList {
    list: EntryList,
    found: SurveyedList,
    /// URL of the directory after redirects.
    base: FetchUrl,
}

impl ReceivedList {
    /// Receives the list, with retries.
    fn take_in(
        target: &FetchUrl,
        place: &TreeDestination,
        options: &TreeOptions,
        watcher: &dyn TreeWatcher,
    ) -> Result<Self, FetchError> {
        let files = &options.files;
        let mut tries = 0;
        loop {
            let error = match Self::take_in_once(target, place, options, watcher) {
                Err(error) if error.is_passing() => error,
                ended => return ended,
            };
            tries += 1;
            let Some(pause) = retry::pause(tries, files.retries, error.after()) else {
                return Err(error);
            };
            let report = |message: &str| watcher.report(message);
            retry::wait(&error, pause, report, &|| watcher.check_cancelled())?;
        }
    }

    fn take_in_once(
        target: &FetchUrl,
        place: &TreeDestination,
        options: &TreeOptions,
        watcher: &dyn TreeWatcher,
    ) -> Result<Self, FetchError> {
        let files = &options.files;
        let check = || watcher.check_cancelled();
        let (mut connection, head, from) = ask_for_list(target, options, &check)?;
        // Files without `O_TMPFILE` change the time of the directory.
        let top = place.existing().map(|fd| fstat(fd).map_err(failed("fstat"))).transpose()?;
        let list = EntryList::create(place.beside())?;
        let (most, install) = (options.most_list, comparison_policy(options));
        let mut survey = TreeSurvey::of(&list, place.beside(), place.existing(), install, options)?;
        let end = End { at: Some(0), ..End::of(list.fd()).map_err(failed("fstat"))? };
        let mut refused = None;
        let mut note = |moved: u64| -> Result<(), Cancelled> {
            refused = match survey.advance() {
                Ok(true) if moved <= most => return watcher.check_cancelled(),
                Ok(_) => Some(too_long(most)),
                Err(error) => Some(error),
            };
            Err(Cancelled)
        };
        let body = ResponseBody {
            connection: &mut connection,
            deadline: NetDeadline { limit: files.stall, check: &check },
            way: &files.way,
            end,
            note: &mut note,
            report: &mut Report::default(),
            plans: None,
        };
        let received = body.bring(head.framing()?, None);
        if let Some(refused) = refused {
            return Err(refused);
        }
        received?;
        connection.finish(&head);
        let found = SurveyedList { top, ..survey.finish()? };
        Ok(Self { list, found, base: from.as_directory() })
    }
}

/// Requests the list. Returns the connection, the head of the answer, and the URL after redirects.
fn ask_for_list(
    target: &FetchUrl,
    options: &TreeOptions,
    check: &CancelCheck<'_>,
) -> Result<(FetchConnection, ResponseHead, FetchUrl), FetchError> {
    let files = &options.files;
    // Other servers do not know the options of the request.
    let request = if files.channels.is_some() { &options.list } else { &ListRequest::default() };
    let answer = ask(&target.manifest(request), &FileRequest::ALL, files, check);
    let (connection, head, from) = answer.map_err(|error| match error {
        FetchError::Status { status: 401 | 407, .. } => error,
        FetchError::Status { status, .. } if !error.is_passing() => {
            no_list(target, &format!("the server returned {status}"))
        }
        error => error,
    })?;
    if let Some(channels) = &files.channels {
        peer::check_format(&head, channels.name())?;
    }
    let kind = head.get("content-type").unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(MEDIA_TYPE) {
        return Err(no_list(target, "the response is not a list of files"));
    }
    Ok((connection, head, from))
}

fn too_long(most: u64) -> FetchError {
    let most = quantity::exact(most);
    FetchError::broken(format!("the list of files is larger than {most}; raise --max-list"))
}

fn no_list(target: &FetchUrl, why: &str) -> FetchError {
    FetchError::Unsupported(format!(
        "'{target}' does not list a directory ({why}): -r needs `thalweg serve` at the other end; \
         for other servers, use `wget -r`"
    ))
}

/// The creation of the entries of a list below the root.
struct TreeBuild<'a> {
    list: &'a SurveyedList,
    root: &'a TreeRoot,
    reference: Option<BorrowedFd<'a>>,
    install: InstallPolicy<'a>,
    /// The file system of the directory, if one syncfs(2) call syncs it.
    whole: Option<&'a WholeSync>,
    counters: &'a FetchCounters<'a>,
}

impl TreeBuild<'_> {
    /// Creates all entries that can be fetched. `base`: URL of the directory. `first`: URL that the user named.
    fn run(
        &self,
        base: &FetchUrl,
        first: &FetchUrl,
        options: &TreeOptions,
    ) -> Result<(), FetchError> {
        self.make_directories()?;
        let files = options_of_one(&options.files, self.install);
        let jobs = match options.jobs {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            jobs => jobs,
        };
        let fetch = |entries: &EntryStore| {
            let job = TreeJob {
                base,
                is_own: base.is_beside(first),
                options: &files,
                install: self.install,
                root: self.root.fd(),
                reference: self.reference,
                entries: Mutex::new(entries.entries()),
                account: self.counters,
                whole: self.whole,
                has_digests: AtomicBool::new(false),
            };
            on_threads(jobs, || TreeWorker::new(&job).work());
        };
        fetch(&self.list.entries);
        if self.list.links.bytes() > 0 && !self.counters.is_halting() {
            let mut rest = EntryStore::create(self.root.fd(), c"rest".to_owned())?;
            let (root, install) = (self.root.fd(), self.install);
            link_names(&self.list.links, root, install, self.counters, &mut rest)?;
            if rest.bytes() > 0 {
                fetch(&rest);
            }
        }
        if self.counters.is_halting() { Ok(()) } else { self.finish_directories() }
    }

    fn make_directories(&self) -> Result<(), FetchError> {
        let mut directories = DirectoryCache::below(self.root.fd());
        let mut entries = self.list.directories.entries();
        while let Some(StoredEntry { entry, state, .. }) = entries.next_entry()? {
            if entry.path.is_empty()
                && let Some(change) = self.list.change_of_top(&entry, self.root.fd(), self.install)
            {
                self.counters.changed(b".", FileType::Directory, 0, change);
            }
            if entry.path.is_empty() || state.is(StoredState::SKIPPED) {
                continue;
            }
            self.counters.check_cancelled()?;
            if entry.kind == ManifestKind::Directory(DirectoryContents::Unreadable) {
                self.counters.missed(&entry.path, FetchError::Shut);
            }
            if state.is(StoredState::SAME) {
                continue;
            }
            if state.is(StoredState::PRESENT) {
                self.note_attributes(&mut directories, &entry);
                continue;
            }
            let install = self.install;
            let remove = |above: &TreeDirectory| install.remove_other(&entry, above);
            let made = directories.make(&entry, install.is_fresh, install.is_staged, remove);
            match made {
                Ok(true) => {
                    let change = EntryChange::created();
                    self.counters.changed(&entry.path, FileType::Directory, 0, change);
                }
                Ok(false) => {}
                Err(error) => self.counters.missed(&entry.path, error),
            }
        }
        Ok(())
    }

    /// Reports an existing directory with other attributes than the listed ones.
    fn note_attributes(&self, directories: &mut DirectoryCache<'_>, entry: &ListedEntry) {
        let name = entry.name();
        let Ok(above) = directories.open(entry.directory()) else { return };
        let Ok(Some(there)) = above.look(&name) else { return };
        let attributes = self.install.attributes(&entry.meta, &entry.xattrs);
        let differs = compare_directory(&there, &attributes, above.fd.as_fd(), &name);
        let change = EntryChange::adjusted(differs);
        self.counters.changed(&entry.path, FileType::Directory, 0, change);
    }

    /// Sets the attributes of directories, the innermost first: a mode may forbid access to the entries.
    fn finish_directories(&self) -> Result<(), FetchError> {
        let install = self.install;
        let directories = DirectoryCache::below(self.root.fd());
        let mut entries = self.list.directories.backwards();
        let has_leftovers = install.is_staged && !install.is_fresh;
        while let Some(StoredEntry { entry, state, .. }) = entries.next_entry()? {
            let is_done = state.is(StoredState::SAME) && !state.is(StoredState::TOUCHED);
            if is_done || entry.path.is_empty() || state.is(StoredState::SKIPPED) {
                continue;
            }
            self.counters.check_cancelled()?;
            let finished = directories.open_itself(&entry.path).and_then(|fd| {
                let fd = fd.as_fd();
                if has_leftovers {
                    remove_leftovers(fd)?;
                }
                let refused = install.attributes(&entry.meta, &entry.xattrs).give(fd)?;
                self.counters.refused_xattrs(refused);
                // If one syncfs(2) call follows at the end, it covers these names too.
                if install.fsync == Fsync::Always && !install.is_synced_whole {
                    io::sync(fd).map_err(failed("fsync"))?;
                }
                Ok(())
            });
            match finished {
                // An obstacle at this path was reported when the directory was to be created.
                Ok(())
                | Err(CallFailed { errno: Errno::NOENT | Errno::NOTDIR | Errno::LOOP, .. }) => {}
                Err(error) => self.counters.missed(&entry.path, error.into()),
            }
        }
        if has_leftovers {
            remove_leftovers(self.root.fd())?;
        }
        Ok(())
    }
}

/// Returns the options for one file of many: the user gave no digests.
fn options_of_one(options: &FetchOptions, install: InstallPolicy<'_>) -> FetchOptions {
    FetchOptions { expected: Vec::new(), fsync: install.fsync, ..options.clone() }
}
