//! The steps for one file with contents before its bytes are moved.

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, fstatfs, openat, statat,
};
use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::{Errno, io};

use crate::{
    AttributeDifferences, ChangeAction, Refusal, Skip,
    copy::{
        attributes::{WantedAttributes, remove_other_xattrs},
        compared::of_entry,
        contents::recheck::{is_to_be_renewed, is_to_be_replaced},
        copy_entry::{CopyEntry, SourceFile},
        dest::{
            conflict::resolve_conflict,
            existing::{DestinationVerdict, Existing},
            mode::modes,
            write_target::WriteTarget,
        },
        durable::FileSync,
        entry::{
            hardlink::{NameClaim, claim_name, expect_retry, wake_for},
            twin::{foresee_twin, link_to_twin},
        },
        file_copy::copy_file,
        links::id_of,
        name_at::{CopyPlacement, NameAt},
        shared::ForeseenName,
        unchanged::is_unchanged,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    holder::Holder,
    identity::{Id, kind, size},
    read::{self, TO_READ},
    times,
};

/// The state of one name of a file after a worker has handled it.
enum NameOutcome {
    /// The name was copied, linked or skipped.
    Processed,
    /// Another worker is copying this file under another name; this name is queued again afterwards.
    Waiting,
}

/// Copies a file with contents: a regular file, or, without `-r`, any file that can be read.
pub(crate) fn copy_file_entry(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<()> {
    if is_unchanged(worker, entry)? {
        return Ok(());
    }
    if worker.run.options.dry_run {
        return would_copy(worker, entry);
    }
    let source = open_source(worker, entry)?;
    let mut stat = fstat(&source).map_err(at_source("fstat"))?;
    worker.run.options.given.apply(&mut stat);
    let is_regular = kind(&stat) == FileType::RegularFile;
    if kind(&stat) == FileType::Directory || (!is_regular && !worker.run.options.reads_specials()) {
        return Err(CopyFailure::RefusedSource(Refusal::Replaced));
    }
    worker.run.expect_not_listed_over(&stat, || entry.source_path());
    worker.take_up(entry, size(&stat));
    let copied = copy_or_leave(worker, entry, SourceFile { fd: &source, stat: &stat });
    // A name that waits for the copy of another name returns to the queue. It is counted when the copy exists.
    if !matches!(copied, Ok(NameOutcome::Waiting)) {
        worker.settle(size(&stat));
    }
    expect_retry(worker, &stat, copied.as_ref().err());
    copied.map(drop)
}

/// Copies the file, links it to an earlier copy, or skips it because of an existing file.
fn copy_or_leave(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
) -> Attempt<NameOutcome> {
    let (options, stat) = (worker.run.options, source.stat);
    let is_regular = kind(stat) == FileType::RegularFile;
    let Some(dir) = entry.directory.open()? else { return Ok(NameOutcome::Processed) };
    let at = CopyPlacement { dir: dir.as_fd(), stat };
    let mut verdict = if entry.directory.is_fresh {
        DestinationVerdict::New
    } else {
        resolve_conflict(worker.run, entry, at.dir, stat)?
    };
    if let DestinationVerdict::Skip(reason, mut there) = verdict {
        if let Some(outcome) = keep_existing(worker, entry, at, source, reason, &mut there)? {
            return Ok(outcome);
        }
        verdict = DestinationVerdict::Replace(there);
    }
    let verdict = match verdict {
        DestinationVerdict::Replace(there)
            if options.attributes_only && there.keeps_contents(options) =>
        {
            give_attributes(worker, entry, source, &there)?;
            return Ok(NameOutcome::Processed);
        }
        verdict => verdict,
    };
    if !(options.links_names(entry.named_by_caller(), stat.st_nlink) && is_regular) {
        let is_new = matches!(verdict, DestinationVerdict::New);
        if is_new && link_to_twin(worker, entry, source, at)? {
            return Ok(NameOutcome::Processed);
        }
        copy_file(worker, entry, source, verdict)?;
        return Ok(NameOutcome::Processed);
    }
    match claim_name(worker, entry, at, None)? {
        NameClaim::Waits => return Ok(NameOutcome::Waiting),
        NameClaim::Linked => report_linked(worker, entry, stat, &verdict),
        NameClaim::Separate | NameClaim::Kept => {
            copy_file(worker, entry, source, verdict)?;
        }
        NameClaim::First => {
            let copied = copy_file(worker, entry, source, verdict);
            wake_for(worker, entry, stat, copied)?;
        }
    }
    Ok(NameOutcome::Processed)
}

/// Reports a name that became a hard link to the copy of another name.
fn report_linked(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    verdict: &DestinationVerdict,
) {
    let there = match verdict {
        DestinationVerdict::Replace(there) => Some(there),
        _ => None,
    };
    worker.report_removed(entry, there, stat);
    match there.filter(|there| there.renewed.is_some()) {
        Some(there) => worker.note_link(entry, stat, &there.stat),
        None => worker.note_copied(entry, stat, there),
    }
    worker.list_file(entry);
}

/// Determines the outcome for a file in a dry run. Opens the file only to compare bytes (a sync with `--checksum` or
/// `--verify`), or to compare it with an earlier snapshot. Opening a FIFO would wait for a writer, and opening a device
/// may have side effects.
fn would_copy(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<()> {
    let mut stat = entry.stat(worker.run.options.follows(entry.named_by_caller()))?;
    worker.run.options.given.apply(&mut stat);
    accessat(entry.from.open()?, entry.source, Access::READ_OK, AtFlags::EACCESS)
        .map_err(at_source("faccessat2 R_OK"))?;
    let dir = entry.directory.open()?;
    let verdict = match &dir {
        Some(dir) if !entry.directory.is_fresh => {
            resolve_conflict(worker.run, entry, dir.as_fd(), &stat)?
        }
        _ => DestinationVerdict::New,
    };
    let has_names = worker.run.options.links_names(entry.named_by_caller(), stat.st_nlink);
    if matches!(verdict, DestinationVerdict::New) && !has_names {
        let device = dir.as_ref().and_then(|dir| Some(fstat(dir).ok()?.st_dev));
        if foresee_twin(worker, entry, &stat, device)? {
            return Ok(());
        }
    }
    let verdict = foresee(worker, entry, &stat, verdict)?;
    if let DestinationVerdict::Skip(reason, there) = verdict {
        worker.skip(entry, reason);
        foresee_kept(worker, entry, &stat, &there.stat)?;
    } else {
        let there =
            if let DestinationVerdict::Replace(there) = &verdict { Some(there) } else { None };
        worker.report_removed(entry, there, &stat);
        if has_names {
            worker.foresee_name(&stat, None);
        }
        worker.note_copied(entry, &stat, there);
        if let Some(room) = &worker.run.room
            && !there.is_some_and(|there| there.is_special() || there.is_behind_link())
            && !matches!(verdict, DestinationVerdict::NewBehindLink(_))
        {
            let from = entry.from.open()?;
            room.count(worker.run.options, from.as_fd(), &stat, there.map(|there| &there.stat));
        }
        worker.count_file(entry, None);
    }
    Ok(())
}

/// In a dry run of a sync with `--checksum` or `--verify`, reads a file that would be skipped, to find out whether it
/// would be replaced.
fn foresee(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    verdict: DestinationVerdict,
) -> Attempt<DestinationVerdict> {
    let DestinationVerdict::Skip(reason, mut there) = verdict else { return Ok(verdict) };
    let options = worker.run.options;
    let Some(dir) = entry.directory.open()? else { return Ok(DestinationVerdict::New) };
    let at = CopyPlacement { dir: dir.as_fd(), stat };
    // If the file has no more names than its source, a sync reports the changed attributes only.
    let is_reported = options.sync.is_none() || there.stat.st_nlink > stat.st_nlink;
    if is_reported && is_to_be_renewed(worker, entry, reason, at, &mut there)? {
        return Ok(DestinationVerdict::Replace(there));
    }
    let is_verified = options.sync.is_some() && options.verify.is_some();
    if !options.compares_bytes() && !is_verified {
        worker.tally.verified.not_read += u64::from(options.verify.is_some());
        return Ok(DestinationVerdict::Skip(reason, there));
    }
    let source = open_source(worker, entry)?;
    let source = SourceFile { fd: &source, stat };
    Ok(if is_to_be_replaced(worker, entry, reason, source, dir.as_fd(), &there)? {
        DestinationVerdict::Replace(there)
    } else {
        DestinationVerdict::Skip(reason, there)
    })
}

/// In a dry run of a sync, reports what would change about a file with equal contents.
fn foresee_kept(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    there: &Stat,
) -> Attempt<()> {
    let Some(dir) = entry.directory.open()? else { return Ok(()) };
    if worker.run.options.sync.is_none() {
        return Ok(());
    }
    let has_names = worker.run.options.links_names(entry.named_by_caller(), stat.st_nlink);
    let none = AttributeDifferences::default();
    let foreseen =
        if has_names { worker.foresee_name(stat, Some(there)) } else { ForeseenName::First };
    let differs = match foreseen {
        ForeseenName::Linked => {
            worker.note_change(entry, ChangeAction::Link, stat, none);
            return Ok(());
        }
        // The existing entry is a hard link to the file of the first name, and shares its attributes.
        ForeseenName::Stays => none,
        ForeseenName::First => of_entry(worker.run, entry, dir.as_fd(), stat, there)?,
    };
    worker.note_attributes(entry, stat, differs);
    Ok(())
}

fn open_source(worker: &CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    if !worker.run.options.follows(entry.named_by_caller()) {
        flags |= OFlags::NOFOLLOW;
    }
    if !worker.run.options.reads_specials() {
        // A file in the listing may have become a FIFO: `O_NONBLOCK` avoids the wait for a writer.
        flags |= OFlags::NONBLOCK;
    }
    openat(entry.from.open()?, entry.source, flags, Mode::empty()).map_err(at_source("openat"))
}

/// Gives an existing file the attributes of the source. Its bytes stay unchanged.
fn give_attributes(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
    there: &Existing,
) -> Attempt<()> {
    let Some(dir) = entry.directory.open()? else { return Ok(()) };
    let fd = open_existing(there.name_at(NameAt { dir: dir.as_fd(), name: entry.name }))?;
    let (_, wanted) = modes(worker.run, entry, source.stat, Some(there), WriteTarget::Existing);
    let dressed = source.xattrs(worker.run.options.preserve).and_then(|taken| {
        entry.apply_attributes(worker.run, Holder::Fd(fd.as_fd()), &taken, source.stat, &wanted)
    });
    if let Err(failure) = dressed {
        worker.incomplete(entry, failure);
    }
    worker.count_file(entry, None);
    Ok(())
}

/// Opens an existing file for reading, or for writing if the user may only write it.
fn open_existing(NameAt { dir, name }: NameAt<'_>) -> Attempt<OwnedFd> {
    let fd = match read::open(dir, name, false) {
        Err(Errno::ACCESS) => {
            openat(dir, name, TO_READ | OFlags::NOFOLLOW | OFlags::WRONLY, Mode::empty())
        }
        answer => answer,
    };
    fd.map_err(at_sink("openat"))
}

/// Keeps the existing file. Returns `None` if the file must be replaced after all. If the source has more names, they
/// are linked to the existing file. If another name of the source is already copied, a link to that copy replaces the
/// existing file, unless the existing file is newer.
fn keep_existing(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    at: CopyPlacement<'_>,
    source: SourceFile<'_>,
    reason: Skip,
    there: &mut Existing,
) -> Attempt<Option<NameOutcome>> {
    let CopyPlacement { dir, stat } = at;
    let has_names = worker.run.options.links_names(entry.named_by_caller(), stat.st_nlink);
    let are_files = [stat, &there.stat].map(kind) == [FileType::RegularFile; 2];
    // A symbolic link to the file does not count: `linkat` would link to the symbolic link itself.
    let is_its_name = || Ok::<_, CopyFailure>(id_of(dir, entry.name)? == Some(Id::of(&there.stat)));
    let is_linked =
        has_names && are_files && matches!(reason, Skip::Done | Skip::Newer) && is_its_name()?;
    let claim = if is_linked {
        claim_name(worker, entry, at, Some(&there.stat))?
    } else {
        NameClaim::Separate
    };
    match claim {
        NameClaim::Waits => return Ok(Some(NameOutcome::Waiting)),
        NameClaim::Linked => {
            worker.list_file(entry);
            worker.note_link(entry, stat, &there.stat);
            return Ok(Some(NameOutcome::Processed));
        }
        NameClaim::First | NameClaim::Separate | NameClaim::Kept => {}
    }
    let is_replaced = is_to_be_replaced(worker, entry, reason, source, dir, there);
    let is_replaced = match is_replaced {
        // The attributes of a copy that this run made under another name are right already.
        Ok(false) if !matches!(claim, NameClaim::Kept) => {
            is_to_be_renewed(worker, entry, reason, at, there)
        }
        answer => answer,
    };
    let stays = matches!(is_replaced, Ok(false));
    // A failure is returned only after the names that wait for this one are queued.
    let skipped = if stays { skip_file(worker, entry, reason, source, there) } else { Ok(()) };
    if matches!(claim, NameClaim::First) {
        // If the file is replaced, this claim ends and the caller claims the name again. By then another name may be
        // the first one.
        let copy = if stays { id_of(dir, entry.name) } else { Ok(None) };
        wake_for(worker, entry, stat, copy)?;
    }
    skipped?;
    Ok(if is_replaced? { None } else { Some(NameOutcome::Processed) })
}

fn skip_file(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    reason: Skip,
    source: SourceFile<'_>,
    there: &Existing,
) -> Attempt<()> {
    worker.skip(entry, reason);
    worker.list_file(entry);
    let options = worker.run.options;
    // The attributes of a file with other names are equal, or the file would be replaced.
    let is_alone = !there.has_other_names(options);
    if options.sync.is_some() {
        if is_alone {
            update_attributes(worker, entry, source, &there.stat)?;
        } else {
            worker.note_attributes(entry, source.stat, AttributeDifferences::default());
        }
    } else if reason == Skip::Done {
        worker.tally.resumed += size(source.stat);
        if is_alone {
            apply_attributes_again(worker, entry, source, there);
        }
    }
    if reason == Skip::Done { sync_kept(worker, entry, there) } else { Ok(()) }
}

/// Syncs a file that an earlier run or another program wrote, if no sync of its file system follows.
fn sync_kept(worker: &CopyWorker<'_>, entry: &CopyEntry<'_>, there: &Existing) -> Attempt<()> {
    let (options, directory) = (worker.run.options, entry.directory);
    if !FileSync::is_for_kept(options, directory, there.is_behind_link()) {
        return Ok(());
    }
    let Some(dir) = directory.open()? else { return Ok(()) };
    let fd = open_existing(there.name_at(NameAt { dir: dir.as_fd(), name: entry.name }))?;
    io::sync(&fd).map_err(at_sink("fsync"))
}

/// Checks that an opened file is the one that was examined, and got no other name since then.
fn expect_same(opened: &Stat, there: &Stat) -> Attempt<()> {
    let is_same = Id::of(opened) == Id::of(there) && opened.st_nlink <= there.st_nlink;
    if is_same { Ok(()) } else { Err(CopyFailure::Refused(Refusal::Replaced)) }
}

/// Gives an existing file the attributes in which it differs from its source, and reports them.
fn update_attributes(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
    there: &Stat,
) -> Attempt<()> {
    let Some(dir) = entry.directory.open()? else { return Ok(()) };
    let (run, stat) = (worker.run, source.stat);
    // Another worker may have changed the attributes through another hard link of the file, so they are read again.
    let own = statat(&dir, entry.name, AtFlags::SYMLINK_NOFOLLOW).map_err(at_sink("newfstatat"))?;
    let current = if Id::of(&own) == Id::of(there) { &own } else { there };
    let differs = of_entry(run, entry, dir.as_fd(), stat, current)?;
    if !differs.any() {
        worker.note_attributes(entry, stat, differs);
        return Ok(());
    }
    let keep = run.options.preserve;
    let sink = read::open(&dir, entry.name, false).map_err(at_sink("openat"))?;
    let own = fstat(&sink).map_err(at_sink("fstat"))?;
    expect_same(&own, there)?;
    let has_owner = Some((own.st_uid, own.st_gid));
    let wanted = WantedAttributes { has_owner, ..WantedAttributes::of(keep, stat) };
    let taken = source.xattrs(keep)?;
    let applied = entry.apply_attributes(run, Holder::Fd(sink.as_fd()), &taken, stat, &wanted);
    let removed = remove_other_xattrs(run, sink.as_fd(), &taken);
    match applied.and(removed) {
        Ok(()) => worker.note_attributes(entry, stat, differs),
        Err(failure) => worker.incomplete(entry, failure),
    }
    Ok(())
}

/// Applies the attributes again to a file that an earlier run wrote. That run may have been killed before it had set
/// them all. A different access time alone is ignored, because the source may have been read since then.
fn apply_attributes_again(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    source: SourceFile<'_>,
    there: &Existing,
) {
    let (keep, stat) = (worker.run.options.preserve, source.stat);
    if !(keep.mode || keep.owner || keep.xattrs) {
        return;
    }
    let wanted = WantedAttributes::of(keep, stat);
    let apply = || {
        let taken = source.xattrs(keep)?;
        let Some(dir) = entry.directory.open()? else { return Ok(()) };
        let NameAt { dir, name } = there.name_at(NameAt { dir: dir.as_fd(), name: entry.name });
        let has_time = times::is_same(&there.stat, stat, || fstatfs(dir));
        if taken.is_empty() && wanted.is_had_by(&there.stat) && has_time {
            return Ok(());
        }
        let fd = read::open(dir, name, false).map_err(at_sink("openat"))?;
        expect_same(&fstat(&fd).map_err(at_sink("fstat"))?, &there.stat)?;
        entry.apply_attributes(worker.run, Holder::Fd(fd.as_fd()), &taken, stat, &wanted)
    };
    if let Err(failure) = apply() {
        worker.incomplete(entry, failure);
    }
}
