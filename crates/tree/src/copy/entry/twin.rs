//! Creates a new file as a link to its twin: an existing file with equal contents and attributes.

use rustix::fs::{FileType, Stat, fstat};
use std::os::fd::AsFd;
use thalweg_core::atomic_file::unlink;
use thalweg_sys::io;

use crate::{
    copy::{
        compared::{add_xattrs, of_stats},
        contents::{resume::equal_prefix, verify::ReadEnds},
        copy_entry::{CopyEntry, SourceFile},
        links::id_of,
        name_at::CopyPlacement,
        worker::CopyWorker,
    },
    error::{Attempt, at_source},
    holder::Holder,
    identity::{Id, kind, size},
    read,
    twins::TwinFile,
};

/// Links a new file to an existing one that is equal to its source. Returns `false` if no equal file exists or the link
/// failed. The caller then copies the file.
pub(crate) fn link_to_twin(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
    at: CopyPlacement<'_>,
) -> Attempt<bool> {
    let options = worker.run.options;
    let Some(twins) = &options.twins else { return Ok(false) };
    if kind(source.stat) != FileType::RegularFile {
        return Ok(false);
    }
    let Some(twin) = twins.candidate(&entry.path_below(options), source.stat) else {
        return Ok(false);
    };
    let are_moved = twins.are_moved();
    let device = fstat(at.dir).map_or(0, |stat| stat.st_dev);
    let Some(copy) = equal_twin(worker, source, &twin, TwinRules { device, are_moved })? else {
        return Ok(false);
    };
    if io::link(twin.dir.as_fd(), &*twin.name, at.dir, entry.name).is_err() {
        return Ok(false);
    }
    // After `equal_twin` opened the twin, another process may have replaced the file that has its name.
    if id_of(at.dir, entry.name)? != Some(copy) {
        let _ = unlink(at.dir, entry.name);
        return Ok(false);
    }
    worker.tally.links += 1;
    worker.finished_file();
    worker.list_file(entry);
    if are_moved {
        worker.note_copied(entry, source.stat, None);
    } else {
        worker.note_linked(entry, source.stat);
    }
    Ok(true)
}

/// In a dry run, returns `true` and counts the file if it would become a link to a file of an earlier snapshot. The
/// source may have become a FIFO or a symbolic link, so `open` neither waits nor follows links. `device` is the device
/// of the destination; `None` if the destination does not exist.
pub(crate) fn foresee_twin(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    device: Option<u64>,
) -> Attempt<bool> {
    let options = worker.run.options;
    let twins = options.twins.as_ref().filter(|twins| !twins.are_moved());
    if kind(stat) != FileType::RegularFile {
        return Ok(false);
    }
    let below = entry.path_below(options);
    let Some(twin) = twins.and_then(|twins| twins.candidate(&below, stat)) else {
        return Ok(false);
    };
    let follows = options.follows(entry.named_by_caller());
    let source = read::open(entry.from.open()?, entry.source, follows);
    let fd = source.map_err(at_source("openat"))?;
    let device = match device {
        Some(device) => device,
        // A dry run assumes that a new destination is on the file system of the snapshot.
        None => fstat(&twin.dir).map_or(0, |stat| stat.st_dev),
    };
    let rules = TwinRules { device, are_moved: false };
    let is_linked = equal_twin(worker, SourceFile { fd: &fd, stat }, &twin, rules)?.is_some();
    if is_linked {
        worker.tally.links += 1;
        worker.finished_file();
        worker.note_linked(entry, stat);
    }
    Ok(is_linked)
}

/// The conditions that a twin must fulfil, apart from equality.
#[derive(Clone, Copy)]
struct TwinRules {
    /// The device of the destination.
    device: u64,
    /// `true` if the twin must have only one name, and all bytes are compared.
    are_moved: bool,
}

/// Returns the identity of the twin if it is equal to the source.
fn equal_twin(
    worker: &mut CopyWorker<'_>,
    source: SourceFile<'_>,
    twin: &TwinFile,
    rules: TwinRules,
) -> Attempt<Option<Id>> {
    let run = worker.run;
    let Ok(copy) = read::open(&twin.dir, &twin.name, false) else { return Ok(None) };
    let Ok(own) = fstat(&copy) else { return Ok(None) };
    let is_usable = kind(&own) == FileType::RegularFile
        && own.st_size == source.stat.st_size
        && own.st_dev == rules.device
        && !(rules.are_moved && own.st_nlink != 1);
    if !is_usable {
        return Ok(None);
    }
    let mut differs = of_stats(run, copy.as_fd(), source.stat, &own);
    add_xattrs(run, [&Holder::Fd(source.fd.as_fd()), &Holder::Fd(copy.as_fd())], &mut differs)?;
    if differs.any() {
        return Ok(None);
    }
    if rules.are_moved || run.options.verify.is_some() || run.options.compares_bytes() {
        worker.make_room();
        let ends = ReadEnds { source: source.fd.as_fd(), copy: copy.as_fd() };
        let len = size(source.stat);
        if equal_prefix(ends, len, &mut worker.buffer, || run.go_on())? != len {
            return Ok(None);
        }
    }
    Ok(Some(Id::of(&own)))
}
