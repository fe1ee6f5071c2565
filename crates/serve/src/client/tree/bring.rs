//! The steps of a tree fetch, in order.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, atomic::AtomicBool},
    time::Instant,
};

use rustix::fs::FileType;
use thalweg_core::atomic_file::{CallFailed, Fsync, failed};
use thalweg_sys::{Errno, host::may_fail_at_close, io, usage::Usage};
use thalweg_tree::{
    Total,
    install::{WholeSync, remove_leftovers},
    on_threads,
};

use super::{
    account::FetchCounters,
    change::EntryChange,
    compare::compare_directory,
    directories::{DirectoryCache, TreeDirectory},
    entry::ListedEntry,
    files::InstallPolicy,
    hard_links::link_names,
    job::TreeJob,
    options::{TreeOptions, TreeWatcher},
    outcome::TreeFetched,
    place::{TreeDestination, TreeRoot},
    preview::{PreviewRoots, preview},
    received::ReceivedList,
    reference,
    renames::TreeRenames,
    store::{EntryStore, StoredEntry, StoredState},
    survey::{ChangedEntries, SurveyedList},
    worker::TreeWorker,
};
use crate::{
    client::{FetchError, FetchOptions, FetchUrl},
    manifest::{DirectoryContents, ListRequest, ManifestKind},
};

/// Fetches the directory at `target` into `place`. Returns an error if the fetch cannot begin, or if the deletion or
/// the release of the staging directory fails. [`TreeFetched::halted`] has every other error that stops the fetch.
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
    let found = &list.found;
    let totals = found.check.totals;
    let files = found.check.files - found.skipped.files;
    watcher.total(Total { files, bytes: totals.bytes - found.skipped.bytes });
    if options.sync.as_ref().is_some_and(|sync| sync.dry_run) {
        let roots =
            PreviewRoots { destination: place.existing(), beside: place.beside(), reference };
        return only_look(&list, target, roots, options, watcher);
    }
    let root = place.begin(&stage_name(target, options))?;
    if let TreeRoot::Stage(stage) = &root
        && let Some(left) = stage.left_alone()
    {
        watcher.report(&format!("warning: {left}"));
    }
    make(&list, target, root, reference, options, watcher)
}

/// Creates the tree in `root`, publishes it, and deletes the entries that the list does not have.
fn make(
    list: &ReceivedList,
    target: &FetchUrl,
    root: TreeRoot,
    reference: Option<BorrowedFd<'_>>,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<TreeFetched, FetchError> {
    let ReceivedList { found, base, .. } = list;
    let whole = WholeSync::of(root.fd());
    let account = FetchCounters::new(watcher, options.sync.is_some());
    let install = install_policy(&root, options, whole.is_some());
    let (whole, counters) = (whole.as_ref(), &account);
    counters.unchanged(found.unchanged);
    found.filter.report(counters);
    let renames = TreeRenames::of(list, options, counters).filter(|_| !root.is_staged());
    let renames = renames.as_ref();
    let build =
        TreeBuild { list: found, root: &root, reference, renames, install, whole, counters };
    let job = BuildJob { base, is_own: base.is_beside(target), options };
    if let Err(error) = build.run(&job) {
        account.halt(error);
    }
    let is_staged = root.is_staged();
    let (mut deletion, mut kept) = (None, None);
    if !is_staged && !account.is_halting() {
        deletion = list.delete(options, counters, watcher)?;
        let is_cancelled = deletion.as_ref().is_some_and(|deletion| deletion.halted.is_some());
        if !is_cancelled && let Err(error) = build.replace_directories(&job) {
            account.halt(error);
        }
    }
    let _ = watcher.progress(account.progress());
    if account.is_halting() {
        kept = root.leave()?;
    } else {
        match publish(root, found, install, whole, options.files.fsync) {
            Ok(refused) => account.refused_xattrs(refused),
            Err(error) => account.halt(error),
        }
    }
    // A new directory has nothing to delete, but this call also records the file system of the source for later runs.
    if is_staged && !account.is_halting() {
        deletion = list.delete(options, counters, watcher)?;
    }
    let mut fetched = TreeFetched { deletion, kept, ..account.sum() };
    found.count_missing(&mut fetched);
    Ok(fetched)
}

/// Returns the URL by which a later run recognizes the staging directory. A run that copies symbolic links as links
/// does not continue the staging directory of a run that copied their targets, or vice versa.
fn stage_name(target: &FetchUrl, options: &TreeOptions) -> String {
    let copy_links = options.list.copy_links;
    let request = ListRequest { copy_links, ..ListRequest::default() };
    if copy_links { target.manifest(&request).to_string() } else { target.to_string() }
}

/// Reports the changes that a sync would make.
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
    let install = options.comparison_policy();
    let files = options_of_one(&options.files, install);
    let job = TreeJob {
        base,
        is_own: base.is_beside(target),
        options: &files,
        install,
        root: roots.beside,
        reference: None,
        renames: None,
        entries: Mutex::new(found.changed.entries.entries()),
        account: &account,
        whole: None,
        has_digests: AtomicBool::new(false),
    };
    let stores = [&found.directories, &found.changed.entries];
    preview(found, &stores, &found.changed.links, roots, &job)?;
    let existing = roots.destination.map(|_| list.delete(options, &account, watcher));
    let deletion = existing.transpose()?.flatten();
    let is_directory_gone = deletion.as_ref().is_some_and(|deletion| deletion.refused.is_none());
    let job = TreeJob { install: InstallPolicy { is_directory_gone, ..install }, ..job };
    preview(found, &[&found.deferred.entries], &found.deferred.links, roots, &job)?;
    drop(job);
    let mut fetched = TreeFetched { deletion, ..account.sum() };
    found.count_missing(&mut fetched);
    Ok(fetched)
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
            root.publish(&attributes, list.keeps_top, whole, fsync)
        }
        None => Err(FetchError::broken("the list of files is empty")),
    }
}

fn install_policy<'a>(
    root: &TreeRoot,
    options: &'a TreeOptions,
    is_synced_whole: bool,
) -> InstallPolicy<'a> {
    // The files need no sync of their own: the staging directory is synced as a whole before it becomes visible.
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
        is_directory_gone: false,
        kept: options
            .sync
            .as_ref()
            .and_then(|sync| sync.kept.as_deref())
            .filter(|_| !root.is_staged()),
    }
}

/// State for creating the entries of a list below the root.
struct TreeBuild<'a> {
    list: &'a SurveyedList,
    root: &'a TreeRoot,
    reference: Option<BorrowedFd<'a>>,
    renames: Option<&'a TreeRenames<'a>>,
    install: InstallPolicy<'a>,
    /// The file system of the tree, if one syncfs(2) call can sync it.
    whole: Option<&'a WholeSync>,
    counters: &'a FetchCounters<'a>,
}

/// Settings for fetching the entries of a list.
struct BuildJob<'a> {
    /// URL of the directory.
    base: &'a FetchUrl,
    /// `true` if the server is the one that the user named.
    is_own: bool,
    options: &'a TreeOptions,
}

impl TreeBuild<'_> {
    /// Creates all entries, except those that replace directories after the deletion.
    fn run(&self, job: &BuildJob<'_>) -> Result<(), FetchError> {
        self.make_directories()?;
        self.fetch(&self.list.changed, job)?;
        // If files are created later, the directories are finished after them, because new files change the times of
        // directories.
        let is_last = self.list.deferred.bytes() == 0;
        if self.counters.is_halting() || !is_last { Ok(()) } else { self.finish_directories() }
    }

    /// Creates the entries that replace directories. If the deletion did not remove a directory, the entry that
    /// replaces it fails.
    fn replace_directories(&self, job: &BuildJob<'_>) -> Result<(), FetchError> {
        if self.list.deferred.bytes() == 0 {
            return Ok(());
        }
        self.fetch(&self.list.deferred, job)?;
        if self.counters.is_halting() { Ok(()) } else { self.finish_directories() }
    }

    fn fetch(&self, changed: &ChangedEntries, job: &BuildJob<'_>) -> Result<(), FetchError> {
        let BuildJob { base, is_own, options } = *job;
        let files = options_of_one(&options.files, self.install);
        let jobs = match options.jobs {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            jobs => jobs,
        };
        let fetch = |entries: &EntryStore| {
            let job = TreeJob {
                base,
                is_own,
                options: &files,
                install: self.install,
                root: self.root.fd(),
                reference: self.reference,
                renames: self.renames,
                entries: Mutex::new(entries.entries()),
                account: self.counters,
                whole: self.whole,
                has_digests: AtomicBool::new(false),
            };
            on_threads(jobs, || TreeWorker::new(&job).work());
        };
        fetch(&changed.entries);
        if changed.links.bytes() > 0 && !self.counters.is_halting() {
            let mut rest = EntryStore::create(self.root.fd(), c"rest".to_owned())?;
            let (root, install) = (self.root.fd(), self.install);
            link_names(&changed.links, root, install, self.counters, &mut rest)?;
            if rest.bytes() > 0 {
                fetch(&rest);
            }
        }
        Ok(())
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

    /// Reports an existing directory with other attributes than listed.
    fn note_attributes(&self, directories: &mut DirectoryCache<'_>, entry: &ListedEntry) {
        let name = entry.name();
        let Ok(above) = directories.open(entry.directory()) else { return };
        let Ok(Some(there)) = above.look(&name) else { return };
        let attributes = self.install.attributes(&entry.meta, &entry.xattrs);
        let differs = compare_directory(&there, &attributes, above.fd.as_fd(), &name);
        let change = EntryChange::adjusted(differs);
        self.counters.changed(&entry.path, FileType::Directory, 0, change);
    }

    /// Sets the attributes of directories, the innermost first: the mode of a directory may forbid access to its
    /// entries.
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
                // `make_directories` has reported the entry that prevents this directory.
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

/// Returns the options for one file of a tree. The user can give digests only for a single file.
fn options_of_one(options: &FetchOptions, install: InstallPolicy<'_>) -> FetchOptions {
    FetchOptions { expected: Vec::new(), fsync: install.fsync, ..options.clone() }
}
