//! Creates a new file as a link to an existing file with equal contents and attributes.

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use std::os::fd::AsFd;
use thalweg_core::atomic_file::unlink;
use thalweg_sys::io;

use crate::{
    copy::{
        compared::{add_xattrs, of_stats},
        contents::{resume::equal_prefix, verify::ReadEnds},
        copy_entry::CopyEntry,
        dest::publish::ignore,
        links::id_of,
        name_at::CopyPlacement,
        source_file::SourceFile,
        worker::CopyWorker,
    },
    error::Attempt,
    identity::{Id, kind, size},
    twins::TwinFile,
    xattrs::Holder,
};

/// Links a new file to an existing one that is equal to its source. Returns `false` if no file is equal, or if it
/// cannot be linked; the file is then copied.
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
    let Some(copy) = equal_twin(worker, source, at, &twin)? else { return Ok(false) };
    if io::link(twin.dir.as_fd(), &*twin.name, at.dir, entry.name).is_err() {
        return Ok(false);
    }
    // The name may have been given to another file since it was opened.
    if id_of(at.dir, entry.name)? != Some(copy) {
        ignore(unlink(at.dir, entry.name));
        return Ok(false);
    }
    worker.tally.links += 1;
    worker.finished_file();
    worker.list_file(entry);
    worker.note_copied(entry, source.stat, None);
    Ok(true)
}

/// Returns the identity of the twin if it is equal to the source.
fn equal_twin(
    worker: &mut CopyWorker<'_>,
    source: SourceFile<'_>,
    at: CopyPlacement<'_>,
    twin: &TwinFile,
) -> Attempt<Option<Id>> {
    let run = worker.run;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(copy) = openat(&twin.dir, &*twin.name, flags, Mode::empty()) else { return Ok(None) };
    let Ok(own) = fstat(&copy) else { return Ok(None) };
    let is_usable = kind(&own) == FileType::RegularFile
        && own.st_size == source.stat.st_size
        && own.st_dev == fstat(at.dir).map_or(0, |stat| stat.st_dev)
        && !(twin.is_moved && own.st_nlink != 1);
    if !is_usable {
        return Ok(None);
    }
    let mut differs = of_stats(run, copy.as_fd(), source.stat, &own);
    add_xattrs(run, [&Holder::Fd(source.fd.as_fd()), &Holder::Fd(copy.as_fd())], &mut differs)?;
    if differs.any() {
        return Ok(None);
    }
    if twin.is_moved || run.options.verify.is_some() || run.options.compares_bytes() {
        worker.make_room();
        let ends = ReadEnds { source: source.fd.as_fd(), copy: copy.as_fd() };
        let len = size(source.stat);
        if equal_prefix(ends, len, &mut worker.buffer, || run.go_on())? != len {
            return Ok(None);
        }
    }
    Ok(Some(Id::of(&own)))
}
