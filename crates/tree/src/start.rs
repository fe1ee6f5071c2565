//! Starts a run: resolves names, starts workers, closes the account.

use std::{
    ffi::CString,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use thalweg_sys::{io, usage, usage::Usage};

use crate::{
    CopyOptions, Error, Event, Events, Fsync, TreeReport,
    directory::Directory,
    place::{Place, os},
    queue::Task,
    report::Tally,
    run::{Me, Run},
    sources::{Named, inspect, resolve, waves},
    threads::{on_threads, or_processors},
    worker::Worker,
};

/// Copies `sources` to `destination`. What goes wrong with single files is in the report; an error
/// means that nothing was begun.
pub fn copy(
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
    events: &dyn Events,
) -> Result<TreeReport, Error> {
    let began = Instant::now();
    let cpu = Usage::now_process();
    let (base, named) = resolve(sources, destination, options)?;
    let found = inspect(named, &base, options);
    let run = Run::new(options, events, Me::looking_at(&base.fd, options));
    for (source, reason) in found.refused {
        run.failed(Error::Refused { path: os(&source.source).into(), reason });
    }
    for source in found.repeated {
        events.event(&Event::NamedTwice { source: os(&source.source).as_ref() });
    }
    let mut report = TreeReport::default();
    let path = CString::new(base.path.as_os_str().as_bytes());
    let path = path.map_err(|_| Error::Usage("a name with a NUL in it".to_owned()))?;
    let place = Place::root(CString::default(), path);
    let failed = |errno, call| Error::Call { path: base.path.clone(), call, errno, bytes: 0 };
    let fd = base.fd.try_clone().map_err(|_| failed(thalweg_sys::Errno::MFILE, "fcntl"))?;
    let directory = Directory::base(&run, place, fd)
        .map_err(|failure| failure.at(|| base.path.clone(), || base.path.clone()))?;
    if found.has_trees {
        // A deep tree holds a directory open on every level.
        let _ = usage::raise_open_files();
    }
    for wave in waves(found.accepted) {
        let threads = threads(options, wave.len(), found.has_trees);
        for tally in sail(&run, &directory, wave, threads) {
            report.add(tally);
        }
    }
    if options.fsync == Fsync::Dir
        && !options.dry_run
        && let Err(errno) = io::sync(base.fd.as_fd())
    {
        run.failed(failed(errno, "fsync"));
    }
    drop(directory);
    run.conclude(&mut report);
    report.seconds = began.elapsed().as_secs_f64();
    report.cpu_seconds = Usage::now_process().since(&cpu).cpu().as_secs_f64();
    Ok(report)
}

fn threads(options: &CopyOptions, sources: usize, has_trees: bool) -> usize {
    // Counting the cores reads half a dozen files: not for a single one.
    if !has_trees && sources <= 1 {
        return 1;
    }
    let wanted = or_processors(options.jobs);
    if has_trees { wanted } else { wanted.min(sources) }
}

/// Copies one wave of sources, whose names all differ.
fn sail(run: &Run<'_>, directory: &Arc<Directory>, wave: Vec<Named>, threads: usize) -> Vec<Tally> {
    // Last in, first out: the first source is to be first.
    for Named { source, name } in wave.into_iter().rev() {
        directory.expect_one_more();
        run.queue.push(Task::Named { directory: Arc::clone(directory), source, name });
    }
    on_threads(threads, || Worker::new(run).work())
}
