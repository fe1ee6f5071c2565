//! The steps of a tree fetch, in order.

use std::{cell::Cell, sync::Mutex, time::Instant};

use rustix::fs::FileType;
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
    directories::DirectoryCache,
    entry::{ListedEntry, ListedKind, ParsedLine, parse},
    files::InstallPolicy,
    job::TreeJob,
    list::{EntryList, may_be_directory},
    options::{TreeOptions, TreeWatcher},
    outcome::TreeFetched,
    place::{TreeDestination, TreeRoot},
    preview::preview,
    worker::TreeWorker,
};
use crate::{
    client::{
        FetchError, FetchOptions, FetchUrl, ask::ask, body::ResponseBody, deadline::NetDeadline,
        peer, resume::FileRequest, retry,
    },
    manifest::MEDIA_TYPE,
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
    let list = EntryList::create(place.beside())?;
    let base = take_in(target, &list, options, watcher)?;
    let found = list.check(|| Ok(watcher.check_cancelled()?))?;
    watcher.total(Total { files: found.files, bytes: found.sums.bytes });
    if let Some(sync) = options.sync.as_ref().filter(|sync| sync.dry_run) {
        let mut fetched = only_look(&list, &place, options, watcher)?;
        fetched.left_out = found.sums.left_out + found.reserved;
        if place.existing().is_some() {
            fetched.deletion = delete(&list, sync, &fetched, watcher)?;
        }
        return Ok(fetched);
    }
    let root = place.begin(&target.to_string())?;
    if let TreeRoot::Stage(stage) = &root
        && let Some(left) = stage.left_alone()
    {
        watcher.report(&format!("warning: {left}"));
    }
    let whole = WholeSync::of(root.fd());
    let account = FetchCounters::new(watcher, options.sync.is_some());
    let install = install_policy(&root, options, whole.is_some());
    let (whole, counters) = (whole.as_ref(), &account);
    let build = TreeBuild { list: &list, root: &root, install, whole, counters };
    if let Err(error) = build.run(&base, target, options) {
        account.halt(error);
    }
    let _ = watcher.progress(account.progress());
    let mut fetched = account.sum();
    fetched.left_out = found.sums.left_out + found.reserved;
    if let Some(sync) = options.sync.as_ref().filter(|_| !root.is_staged())
        && fetched.halted.is_none()
    {
        fetched.deletion = delete(&list, sync, &fetched, watcher)?;
    }
    if fetched.halted.is_some() {
        fetched.kept = root.leave()?;
    } else if let Err(error) = publish(root, &list, install, whole, options.files.fsync) {
        fetched.halted = Some(error);
    }
    Ok(fetched)
}

/// Reports the changes of a sync.
fn only_look(
    list: &EntryList,
    place: &TreeDestination,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<TreeFetched, FetchError> {
    let account = FetchCounters::new(watcher, true);
    let install = InstallPolicy {
        is_fresh: false,
        is_staged: false,
        owner: options.owner,
        all_links: options.all_links,
        by_hash: false,
        is_synced_whole: false,
        fsync: Fsync::Never,
        close_may_fail: false,
    };
    preview(list, place.existing(), install, &account)?;
    Ok(account.sum())
}

fn publish(
    root: TreeRoot,
    list: &EntryList,
    install: InstallPolicy,
    whole: Option<&WholeSync>,
    fsync: Fsync,
) -> Result<(), FetchError> {
    let mut lines = list.lines();
    match lines.next_line()?.map(parse) {
        Some(Ok(ParsedLine::Entry(top))) => {
            root.publish(&install.attributes(&top.meta), whole, fsync)
        }
        _ => Err(FetchError::broken("the stored list has changed")),
    }
}

fn install_policy(root: &TreeRoot, options: &TreeOptions, is_synced_whole: bool) -> InstallPolicy {
    // The names in a staging directory are not visible before all of it is synced.
    let is_synced_later = root.is_staged() && is_synced_whole;
    InstallPolicy {
        is_fresh: root.is_fresh(),
        is_staged: root.is_staged(),
        owner: options.owner,
        all_links: options.all_links,
        by_hash: options.by_hash,
        is_synced_whole,
        fsync: if is_synced_later { Fsync::Never } else { options.files.fsync },
        close_may_fail: may_fail_at_close(root.fd()).unwrap_or(true),
    }
}

/// Stores the list in a file, with retries. Returns the URL of the directory after redirects.
fn take_in(
    target: &FetchUrl,
    list: &EntryList,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<FetchUrl, FetchError> {
    let files = &options.files;
    let mut tries = 0;
    loop {
        let error = match take_in_once(target, list, options, watcher) {
            Err(error) if error.is_passing() => error,
            ended => return ended,
        };
        tries += 1;
        let Some(pause) = retry::pause(tries, files.retries, error.after()) else {
            return Err(error);
        };
        let report = |message: &str| watcher.report(message);
        retry::wait(&error, pause, report, &|| watcher.check_cancelled())?;
        io::ftruncate(list.fd(), 0).map_err(failed("ftruncate"))?;
    }
}

fn take_in_once(
    target: &FetchUrl,
    list: &EntryList,
    options: &TreeOptions,
    watcher: &dyn TreeWatcher,
) -> Result<FetchUrl, FetchError> {
    let files = &options.files;
    let check = || watcher.check_cancelled();
    let answer = ask(&target.manifest(), &FileRequest::ALL, files, &check);
    let (mut connection, head, from) = answer.map_err(|error| match error {
        FetchError::Status { status: 401 | 407, .. } => error,
        FetchError::Status { status, .. } if !error.is_passing() => {
            no_list(target, &format!("it returned {status}"))
        }
        error => error,
    })?;
    if let Some(channels) = &files.channels {
        peer::check_format(&head, channels.name())?;
    }
    let kind = head.get("content-type").unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(MEDIA_TYPE) {
        return Err(no_list(target, "the response is not a list"));
    }
    let end = End { at: Some(0), ..End::of(list.fd()).map_err(failed("fstat"))? };
    let (most, is_too_long) = (options.most_list, Cell::new(false));
    let mut note = |moved: u64| -> Result<(), Cancelled> {
        is_too_long.set(moved > most);
        if is_too_long.get() { Err(Cancelled) } else { watcher.check_cancelled() }
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
    match body.bring(head.framing()?, None) {
        Err(FetchError::Cancelled) if is_too_long.get() => {
            let most = quantity::exact(most);
            Err(FetchError::broken(format!("the list is larger than {most}; raise --max-list")))
        }
        Err(error) => Err(error),
        Ok(_) => {
            connection.finish(&head);
            Ok(from.as_directory())
        }
    }
}

fn no_list(target: &FetchUrl, why: &str) -> FetchError {
    FetchError::Unsupported(format!(
        "'{target}' does not list a directory ({why}): -r needs `thalweg serve` at the other end; \
         for other servers, use `wget -r`"
    ))
}

/// The creation of the entries of a list below the root.
struct TreeBuild<'a> {
    list: &'a EntryList,
    root: &'a TreeRoot,
    install: InstallPolicy,
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
        let job = TreeJob {
            base,
            is_own: base.is_beside(first),
            options: &files,
            install: self.install,
            root: self.root.fd(),
            lines: Mutex::new(self.list.lines()),
            account: self.counters,
            whole: self.whole,
        };
        let jobs = match options.jobs {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            jobs => jobs,
        };
        on_threads(jobs, || TreeWorker::new(&job).work());
        if self.counters.is_halting() { Ok(()) } else { self.finish_directories() }
    }

    fn make_directories(&self) -> Result<(), FetchError> {
        let (mut lines, mut directories) =
            (self.list.lines(), DirectoryCache::below(self.root.fd()));
        while let Some(line) = lines.next_line()? {
            let Some(entry) = directory_of(line) else { continue };
            self.counters.check_cancelled()?;
            let made = directories.make(&entry, self.install.is_fresh, self.install.is_staged);
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

    /// Sets the attributes of directories, the innermost first: a mode may forbid access to the entries.
    fn finish_directories(&self) -> Result<(), FetchError> {
        let install = self.install;
        let (mut lines, directories) =
            (self.list.backwards()?, DirectoryCache::below(self.root.fd()));
        let has_leftovers = install.is_staged && !install.is_fresh;
        while let Some(line) = lines.next_line()? {
            let Some(entry) = directory_of(&line) else { continue };
            self.counters.check_cancelled()?;
            let finished = directories.open_itself(&entry.path).and_then(|fd| {
                let fd = std::os::fd::AsFd::as_fd(&fd);
                if has_leftovers {
                    remove_leftovers(fd)?;
                }
                install.attributes(&entry.meta).give(fd)?;
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

/// Returns the options for one file of many: no digests are expected.
fn options_of_one(options: &FetchOptions, install: InstallPolicy) -> FetchOptions {
    FetchOptions { expected: Vec::new(), verify: false, fsync: install.fsync, ..options.clone() }
}

fn directory_of(line: &[u8]) -> Option<ListedEntry> {
    let Ok(ParsedLine::Entry(entry)) = may_be_directory(line).then(|| parse(line))? else {
        return None;
    };
    let is_made =
        entry.kind == ListedKind::Directory && !entry.path.is_empty() && !entry.is_reserved();
    is_made.then_some(entry)
}
