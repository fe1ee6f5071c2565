//! Moves the contents of one file, checks them, sets the attributes of the copy and gives it its name.

use rustix::fs::{FileType, SeekFrom, Stat, fstat, seek};
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};
use thalweg_core::atomic_file::{remove_leftover, sync_directory};
use thalweg_sys::{Errno, io};

use crate::{
    Backup, Event, Refusal, Skip, When,
    copy::{
        attributes::{self, Body, Wanted},
        contents::{
            batch::{let_wait, may_wait, name_waiting},
            clone::{Cloning, clone_whole, cloning, was_no_clone},
            job::Job,
            large::move_large,
            open_sink::{open_sink, write_target},
            recheck::{is_equal, tell_again},
            small::{Contents, move_small, read_single, write_single},
            sparse::seems_sparse,
            verify::SinkEnd,
        },
        copy_entry::CopyEntry,
        dest::{
            backup,
            conflict::{Existing, SymlinkTarget, Verdict, resolve_conflict},
            mode::{look_at, modes},
            publish::Sink,
            write_target::{WriteTarget, cannot_be_made, cannot_be_named, cannot_be_replaced},
        },
        durable::FileSync,
        name_at::NameAt,
        plans::contest::{Places, Planned},
        worker::{Worker, single},
    },
    error::{Attempt, Failure, at_sink, at_source},
    identity::{Id, changed, kind, size},
    journal::{Identity, Keeper, Source},
    names::os,
    xattrs::{Holder, Taken},
};

/// Copies a file whose name is free or may be taken. Answers which file it became if
/// others may be linked to it; `None` if it was not copied after all.
pub(crate) fn copy_contents(
    worker: &mut Worker<'_>,
    entry: &CopyEntry<'_>,
    source: &OwnedFd,
    stat: &Stat,
    verdict: Verdict,
) -> Attempt<Option<Id>> {
    let (mut there, link_target) = match verdict {
        Verdict::Replace(there) => (Some(there), None),
        Verdict::NewBehindLink(link_target) => (None, Some(link_target)),
        Verdict::New | Verdict::Skip(..) => (None, None),
    };
    let link_target = link_target.as_ref();
    let counts = (worker.tally.verified, worker.tally.changed);
    let failure = match copy_to(worker, entry, source, stat, (there.as_ref(), link_target)) {
        Err(failure) if can_be_written_into(worker, there.as_ref(), stat, &failure) => failure,
        answer => return answer,
    };
    // As cp does at once.
    if kind(stat) == FileType::RegularFile {
        seek(source, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
    }
    (worker.tally.verified, worker.tally.changed) = counts;
    if let Some(there) = &mut there {
        there.keeps_inode = true;
    }
    worker.tell_written_into(entry, failure);
    copy_to(worker, entry, source, stat, (there.as_ref(), link_target))
}

/// Copies a file over `there`, or to a name that is free: its own, or that link_target a link.
fn copy_to(
    worker: &mut Worker<'_>,
    entry: &CopyEntry<'_>,
    source: &OwnedFd,
    stat: &Stat,
    (there, link_target): (Option<&Existing>, Option<&SymlinkTarget>),
) -> Attempt<Option<Id>> {
    let Some(dir) = entry.directory.open()? else { return Ok(None) };
    let dir = dir.as_fd();
    let here = NameAt { dir, name: entry.name };
    let free = link_target.map_or(here, SymlinkTarget::name_at);
    let name_at = there.map_or(free, |there| there.name_at(here));
    let no_bytes = worker.run.options.attributes_only;
    let is_small = !no_bytes && is_small(worker, stat);
    if !is_small && !no_bytes {
        // A large file may take long, and others may need the names.
        name_waiting(worker);
    }
    let is_new = is_small && there.is_none();
    let planned = if is_new { plan_small(worker, entry, dir, (source, stat)) } else { None };
    // Reading and writing are timed, not the making of the file between them.
    let clock =
        (is_small && worker.shared.contests.is_open(&worker.known, size(stat))).then(Instant::now);
    let contents = if planned.is_some() {
        Contents { len: size(stat) as usize, is_whole: true }
    } else if no_bytes {
        Contents { len: 0, is_whole: true }
    } else if is_small {
        read_single(worker, source, size(stat) as usize)?
    } else {
        Contents::default()
    };
    let reading = clock.map(|began| began.elapsed());
    let cloning = if is_small || no_bytes || there.is_some() {
        None
    } else {
        cloning(worker, dir, (source, stat))
    };
    let at_once = contents.is_whole || cloning.is_some();
    let write_target = write_target(worker, entry, there, at_once);
    let alike = there.filter(|there| !there.is_taken_away());
    let (mode, mut wanted) = modes(worker.run, entry, stat, (alike, write_target));
    let mut sink = match open_sink(
        worker,
        entry,
        (name_at, write_target, there),
        mode,
        (at_once, source, stat),
    ) {
        Err(Failure::Sink(_, Errno::EXIST, _)) if write_target == WriteTarget::Own => {
            return copy_anew(worker, entry, source, stat);
        }
        answer => answer?,
    };
    if let Some(left) = sink.left_alone() {
        worker.run.left_alone(|| entry.destination_path(), left);
    }
    look_at(worker.run, entry, (&sink, name_at.dir), mode, &mut wanted)?;
    let inherits = alike.is_some() && write_target == WriteTarget::Part;
    if inherits {
        (wanted.born_with_acl, wanted.has_mode) = (true, None);
    }
    let may_exist = sink.is_adopted() || !entry.directory.is_fresh;
    let mut keeper = sink
        .journal()
        .map(|name| Keeper::new((name_at.dir, name), Source::Local(Identity::of(stat)), may_exist));
    // Whoever removed a part by hand left its journal.
    if let Some(keeper) = keeper.as_mut().filter(|_| !sink.is_adopted()) {
        keeper.forget().map_err(at_sink("unlinkat"))?;
    }
    let clock = reading.map(|_| Instant::now());
    let written = if let Some(cloning) = &cloning {
        match (clone_whole(worker, (source, stat), sink.fd()), cloning) {
            (Ok(()), _) => Ok(()),
            (Err(errno), Cloning::Must) => Err(Failure::Sink("FICLONE", errno, 0)),
            (Err(errno), Cloning::May(planned)) => {
                was_no_clone(worker, errno, planned);
                worker.uncloneable = Some(Id::of(stat));
                drop(sink);
                return copy_to(worker, entry, source, stat, (there, link_target));
            }
        }
    } else if let Some(planned) = &planned {
        move_small(worker, source, sink.fd(), contents.len, planned)
    } else if contents.is_whole {
        write_single(worker, sink.fd(), contents.len)
    } else {
        let takes_holes = there.is_none_or(|there| !there.is_special());
        let job = Job { source, stat, sink: sink.fd(), adopted: sink.is_adopted(), takes_holes };
        move_large(worker, &job, contents.len, keeper.as_mut())
    };
    if let (Some(reading), Some(began), true) = (reading, clock, contents.is_whole) {
        worker.shared.contests.note(planned.is_some(), size(stat), reading + began.elapsed());
    }
    if inherits && written.is_ok() {
        // Not before: a list of the old file may let others read and write this one.
        attributes::inherit(name_at, sink.fd().as_fd());
    }
    let elsewhere = link_target.is_some() || there.is_some_and(Existing::is_behind_link);
    let (options, concurrency) = (worker.run.options, worker.run.concurrency);
    let has_links = options.links_names(entry.named_by_caller(), stat.st_nlink);
    let sync = FileSync::of(options, concurrency, entry.directory, (there, elsewhere, has_links));
    let finished =
        written.and_then(|()| finish(worker, entry, (source, stat), &sink, (there, &wanted)));
    let waits = finished.is_ok() && contents.is_whole && may_wait(worker, entry, stat, sync);
    if waits && let_wait(worker, entry, stat, &mut sink, (there, sync)) {
        return Ok(None);
    }
    let published = finished.and_then(|()| sync.perform(sink.fd(), size(stat))).and_then(|()| {
        let forgotten = keeper.as_mut().map_or(Ok(()), Keeper::forget);
        forgotten.map_err(at_sink("unlinkat"))?;
        let published = publish(worker, entry, stat, (&mut sink, name_at), there)?;
        if sync == FileSync::All && elsewhere {
            sync_directory(name_at.dir, sink.fd().as_fd())?;
        }
        Ok(published)
    });
    match published {
        Ok(Published::Named(backup)) => {
            // Small files of a tree are not asked for: they never had a part, and a call for each would cost.
            let may_have_part = cloning.is_some() || entry.named_by_caller();
            if write_target == WriteTarget::Nameless && may_have_part && !entry.directory.is_fresh {
                // The copy is whole whatever becomes of an old part.
                let _ = remove_leftover(name_at.dir, name_at.name, Id::of(stat));
            }
            worker.tell_removed(entry, there, stat);
            worker.count_file(entry, backup.as_deref());
            let copy = has_links.then(|| fstat(sink.fd()).map_err(at_sink("fstat")));
            Ok(copy.transpose()?.map(|copy| Id::of(&copy)))
        }
        Ok(Published::Skipped) => {
            worker.skip(entry, Skip::Exists);
            worker.list_file(entry);
            Ok(None)
        }
        Err(failure) => {
            // What is written into the old file next is of no use to a later run.
            let is_given_up = can_be_written_into(worker, there, stat, &failure);
            let is_left = worker.run.options.resume && failure.may_be_resumed() && !is_given_up;
            match keeper {
                Some(mut keeper) if is_left => {
                    keeper.write();
                    if let Some(part) = sink.leave() {
                        let directory = &entry.directory;
                        let path = || directory.paths.destination_path().join(os(part));
                        worker.run.left_part(path, directory.is_staged);
                    }
                }
                // The part goes, and this failure is the one to tell.
                Some(mut keeper) => drop(keeper.forget()),
                // A file was cut before the first byte, a device has lost what was written over.
                None if write_target == WriteTarget::Existing
                    && there.is_some_and(|there| !there.is_special() || worker.of_file > 0) =>
                {
                    worker.run.torn(entry.destination_path());
                }
                None => {}
            }
            // The part was spoilt where its journal said that it is true: it is gone now.
            if sink.is_adopted() && matches!(failure, Failure::Differ) {
                drop(sink);
                tell_again(worker, entry);
                return copy_anew(worker, entry, source, stat);
            }
            if write_target == WriteTarget::Nameless && cannot_be_named(&failure) {
                drop(sink);
                worker.no_tmpfile = true;
                return copy_anew(worker, entry, source, stat);
            }
            Err(failure)
        }
    }
}

/// Whether a copy that failed may go into the file that it was to replace.
fn can_be_written_into(
    worker: &Worker<'_>,
    there: Option<&Existing>,
    stat: &Stat,
    failure: &Failure,
) -> bool {
    let options = worker.run.options;
    let is_refused = match failure {
        Failure::Sink("openat", errno, _) => cannot_be_made(*errno),
        // A pipe that was read cannot be read again.
        Failure::Sink("renameat2", errno, _) if kind(stat) == FileType::RegularFile => {
            cannot_be_replaced(*errno)
        }
        _ => false,
    };
    // A backup would have to be made beside it too.
    let wants_backup = options.backup != Backup::None;
    let may_be = |there: &Existing| !there.is_written_into(options) && !there.is_taken_away();
    is_refused && !wants_backup && there.is_some_and(may_be)
}

/// Begins again with another look at the name: another process may have taken it.
fn copy_anew(
    worker: &mut Worker<'_>,
    entry: &CopyEntry<'_>,
    source: &OwnedFd,
    stat: &Stat,
) -> Attempt<Option<Id>> {
    let Some(dir) = entry.directory.open()? else { return Ok(None) };
    let dir = dir.as_fd();
    if kind(stat) == FileType::RegularFile {
        seek(source, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
    }
    match resolve_conflict(worker.run, entry, dir, stat)? {
        // Copied again rather than compared: another process is at work here.
        Verdict::Skip(Skip::Done, there) if there.is_doubted => {
            copy_contents(worker, entry, source, stat, Verdict::Replace(there))
        }
        Verdict::Skip(reason, _) => {
            worker.skip(entry, reason);
            worker.list_file(entry);
            Ok(None)
        }
        verdict => copy_contents(worker, entry, source, stat, verdict),
    }
}

/// Gives the copy its name, and what gives write_target to it another one if that is wanted.
pub(crate) fn publish(
    worker: &Worker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    (sink, name_at): (&mut Sink<'_>, NameAt<'_>),
    there: Option<&Existing>,
) -> Attempt<Published> {
    let options = worker.run.options;
    if there.is_some_and(|there| there.is_written_into(options)) {
        return sink.publish(false).map(|()| Published::Named(None));
    }
    if there.is_none() {
        // The name was free: what has it now is somebody else's, or in a new directory our own
        // copy of a name that the file system does not tell from this one.
        let is_fresh = entry.directory.is_fresh;
        let is_wanted = is_fresh || options.replaces_nothing() || options.backup != Backup::None;
        match sink.publish(is_wanted) {
            Err(Failure::Sink(_, Errno::EXIST, _)) if is_fresh => {
                return Err(Failure::Refused(Refusal::JustCreated));
            }
            Err(Failure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => {
                return Ok(Published::Skipped);
            }
            Err(Failure::Sink(_, Errno::EXIST, _)) if is_wanted => {}
            answer => return answer.map(|()| Published::Named(None)),
        }
    }
    let backup = backup::set_aside(options, name_at, entry, stat)?;
    sink.publish(false).map(|()| Published::Named(backup))
}

/// Everything between the last byte and the name.
fn finish(
    worker: &mut Worker<'_>,
    entry: &CopyEntry<'_>,
    (source, stat): (&OwnedFd, &Stat),
    sink: &Sink<'_>,
    (there, wanted): (Option<&Existing>, &Wanted),
) -> Attempt<()> {
    let options = worker.run.options;
    let is_regular = kind(stat) == FileType::RegularFile;
    let is_special = there.is_some_and(Existing::is_special);
    // Before the attributes: what is still on its write_target would change the times.
    if there.is_some() || entry.directory.may_tell_at_close {
        io::flush(sink.fd()).map_err(|errno| Failure::Sink("close", errno, size(stat)))?;
    }
    let look = || fstat(source).map_err(at_source("fstat"));
    let mut has_changed = is_regular && changed(stat, &look()?);
    let can_be_read_again = is_regular && there.is_none_or(Existing::can_be_read_again);
    let is_unread = options.verify.is_some() && !can_be_read_again;
    worker.tally.verified.not_read += u64::from(is_unread);
    // What follows on a device is not ours.
    let limit = if is_special { SinkEnd::OfSource } else { SinkEnd::Own };
    if let Some(hash) = options.verify.filter(|_| can_be_read_again)
        && !is_equal(worker, (source.as_fd(), sink.fd().as_fd(), limit), hash)?
    {
        has_changed = has_changed || changed(stat, &look()?);
        if !has_changed {
            return Err(Failure::Differ);
        }
    }
    if has_changed {
        worker.tally.changed += 1;
        worker.run.events.event(&Event::Changed { source: &entry.source_path() });
    }
    if is_special {
        return Ok(());
    }
    let body = Body { fd: sink.fd().as_fd(), path: &|| entry.destination_path() };
    let dressed = Taken::from(&Holder::Fd(source.as_fd()), options.preserve)
        .and_then(|taken| attributes::apply_attributes(worker.run, body, &taken, stat, wanted));
    if let Err(failure) = dressed {
        worker.incomplete(entry, failure);
    }
    Ok(())
}

/// Whether a file is read whole into the worker's buffer, if its size is what it says.
fn is_small(worker: &Worker<'_>, stat: &Stat) -> bool {
    let options = worker.run.options;
    kind(stat) == FileType::RegularFile
        && size(stat) <= single() as u64
        && options.allows_single_write()
        && options.sparse != When::Always
        && options.reflink != When::Always
        && !(options.sparse == When::Auto && seems_sparse(stat))
}

/// How a new small file goes if not by read and write.
fn plan_small(
    worker: &mut Worker<'_>,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    (source, stat): (&OwnedFd, &Stat),
) -> Option<Arc<Planned>> {
    let places = Places { source, stat, dir, device: entry.directory.own.dev };
    let (options, shared) = (worker.run.options, worker.shared);
    shared.contests.plan(&mut worker.known, &places, (options, &shared.pairs))
}

/// What became of a copy that is whole.
pub(crate) enum Published {
    /// It has its name; that of the backup.
    Named(Option<CString>),
    /// Nothing may be replaced, and another process was faster.
    Skipped,
}
