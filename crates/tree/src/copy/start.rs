//! Starts a copy: resolves names, runs the workers, completes the report.

use rustix::{
    fs::{AtFlags, FileType, statat},
    process::{Resource, getrlimit},
};
use std::{
    ffi::{CStr, CString},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use thalweg_core::atomic_file;
use thalweg_sys::{Errno, io, usage, usage::Usage};

use crate::{
    Backup, CopyOptions, Error, Event, Events, Fsync, ListedFiles, TreeReport,
    copy::{
        copy_entry::{CopyEntry, QueuedEntry, SourceDirectory},
        dest::backup,
        directory::Directory,
        entry::parents::Parents,
        room::FreeSpace,
        run::{Concurrency, CopyRun, FEWEST_DIRECTORIES, Me, share},
        shared::CopyShared,
        task::CopyTask,
        walk::CopyWalker,
        whole_sync::WholeSync,
    },
    error::at_path,
    fs::cached::DirectoryCache,
    identity::kind,
    names::os,
    paths::DirectoryPaths,
    sources::{Base, Inspection, NamedSource, inspect, resolve, waves},
    threads::{on_threads, or_processors},
};

/// Copies `sources` to `destination`. Errors of single files are in the report. If the function returns an error,
/// nothing was copied.
pub fn copy(
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
    events: &dyn Events,
) -> Result<TreeReport, Error> {
    copy_among(sources, destination, options, events, Concurrency::None)
}

/// Like [`copy`], but `concurrency` says which other processes work in the destination.
pub(crate) fn copy_among(
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
    events: &dyn Events,
    concurrency: Concurrency,
) -> Result<TreeReport, Error> {
    let began = Instant::now();
    let cpu = Usage::now_process();
    let (base, mut named) = resolve(sources, destination, options)?;
    let own;
    let mut options = options;
    if let Some(name) = backup::of_itself(options, &base.fd, sources, destination, &named)? {
        named[0].name = name;
        own = CopyOptions { backup: Backup::None, ..options.clone() };
        options = &own;
    }
    let found = inspect(named, &base, options);
    let mut run = CopyRun::new(options, events, Me::looking_at(&base.fd, options));
    report_sources(&found, &run);
    run.concurrency = concurrency;
    run.is_single = sources.len() == 1;
    run.second = found.second;
    run.room = options.dry_run.then(|| FreeSpace::of(base.fd.as_fd())).flatten();
    let mut report = TreeReport { left_out: found.left_out.len() as u64, ..Default::default() };
    let directory = base_directory(&run, &base)?;
    let enough = if found.has_trees {
        prepare_walk(&mut run, base.fd.as_fd(), threads(options, sources.len(), true))
    } else {
        usize::MAX
    };
    let shared = CopyShared::new(run);
    let mut parents = options.keeps_paths().then(|| Parents::new(&shared, &directory));
    for wave in waves(found.accepted, |name| is_link(&base, name)) {
        let threads = threads(options, wave.len(), found.has_trees).min(enough);
        let below = wave.into_iter().filter_map(|named| match &mut parents {
            Some(parents) => parents.enter(&named),
            None => Some(below(&directory, &named)),
        });
        for tally in sail(&shared, below.collect(), threads) {
            report.add(tally);
        }
    }
    report.dirs += parents.map_or(0, Parents::complete);
    sync_all(&shared.run, base.fd.as_fd(), &base.path);
    if let Some(room) = &shared.run.room {
        room.report(&base.path, events);
    }
    drop(directory);
    let listed = std::mem::take(&mut report.listed.names);
    let is_one_tree = found.has_trees && sources.len() == 1;
    report.listed = ListedFiles::new(&listed, &base.path, destination, is_one_tree);
    shared.run.conclude(&mut report);
    report.seconds = began.elapsed().as_secs_f64();
    report.cpu_seconds = Usage::now_process().since(&cpu).cpu().as_secs_f64();
    Ok(report)
}

fn is_link(base: &Base, name: &CStr) -> bool {
    let stat = statat(&base.fd, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| kind(&stat) == FileType::Symlink)
}

/// Returns a source that is copied directly into the base directory.
fn below(base: &Arc<Directory>, NamedSource { source, name }: &NamedSource) -> QueuedEntry {
    CopyEntry { directory: base, from: &SourceDirectory::Caller, source, name }.queued()
}

/// Returns the directory that receives all copies.
fn base_directory(run: &CopyRun<'_>, base: &Base) -> Result<Arc<Directory>, Error> {
    let name = CString::new(base.path.as_os_str().as_bytes());
    let name = name.map_err(|_| Error::Usage("the path contains a NUL".to_owned()))?;
    let paths = DirectoryPaths::root(CString::default(), name);
    let failed = |_| at_path(&base.path, "fcntl")(Errno::MFILE);
    let fd = base.fd.try_clone().map_err(failed)?;
    Directory::base(run, paths, fd).map_err(|failure| failure.on(&base.path))
}

/// Reports sources that are refused or that the caller named twice, and with `-v` those that a filter excludes.
fn report_sources(found: &Inspection, run: &CopyRun<'_>) {
    for (source, reason) in &found.refused {
        run.failed(Error::Refused { path: os(&source.source).into(), reason: reason.clone() });
    }
    for source in &found.repeated {
        run.events.event(&Event::NamedTwice { source: os(&source.source).as_ref() });
    }
    for source in found.left_out.iter().filter(|_| run.options.verbose) {
        run.events.event(&Event::LeftOut { source: os(&source.source).as_ref() });
    }
}

/// Divides the file descriptors of a run that enters directories. Returns the number of threads for which they suffice.
fn prepare_walk(run: &mut CopyRun<'_>, base: BorrowedFd<'_>, wanted: usize) -> usize {
    // A deep tree keeps one directory per level open, as far as the descriptor limit allows.
    let limit = usage::raise_open_files().unwrap_or(getrlimit(Resource::Nofile).current);
    let (enough, most) = share(limit, wanted);
    // If descriptors are scarce, files do not wait for a common sync: each one is synced separately.
    let has_room = most > FEWEST_DIRECTORIES;
    let is_synced = run.options.fsync != Fsync::Never && !run.options.dry_run && has_room;
    run.whole = is_synced.then(|| WholeSync::of(base)).flatten();
    // Each waiting file needs one descriptor, and possibly one for its directory. At least half of the descriptors stay
    // reserved for the walk.
    run.most_waiting = (most / enough.max(1) / 4).min(MOST_WAITING);
    run.kept = Some(DirectoryCache::new(most - 2 * enough * run.most_waiting));
    enough
}

/// Brings everything to the disk at the end of a run with `--fsync`.
fn sync_all(run: &CopyRun<'_>, base: BorrowedFd<'_>, path: &Path) {
    if run.options.fsync != Fsync::Always || run.options.dry_run {
        return;
    }
    let synced = match &run.whole {
        Some(whole) => whole.sync(),
        None => io::sync(base).map_err(atomic_file::failed("fsync")),
    };
    if let Err(error) = synced {
        run.failed(at_path(path, error.call)(error.errno));
    }
}

/// Maximum number of files of one worker that wait for a common sync. More files share the cost of the sync, but also
/// leave more dirty pages in memory.
const MOST_WAITING: usize = 256;

fn threads(options: &CopyOptions, sources: usize, has_trees: bool) -> usize {
    // Counting the cores reads half a dozen files, so it is skipped for a single source.
    if !has_trees && sources <= 1 {
        return 1;
    }
    let wanted = or_processors(options.jobs);
    if has_trees { wanted } else { wanted.min(sources) }
}

/// Copies one wave of sources. All sources of a wave have different destination names.
fn sail(shared: &CopyShared<'_>, wave: Vec<QueuedEntry>, threads: usize) -> Vec<TreeReport> {
    // The queue is last in, first out, so the sources are pushed in reverse order.
    wave.into_iter().rev().for_each(|entry| shared.queue.push(CopyTask::Named(entry)));
    shared.queue.expect(threads);
    on_threads(threads, || CopyWalker::new(shared).work())
}
