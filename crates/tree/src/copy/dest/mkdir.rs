//! Creates destination directories, or enters existing ones.

use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, mkdirat, statat, unlinkat};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_core::atomic_file::ownership::is_trap_at;
use thalweg_sys::{Errno, host::may_fail_at_close};

use crate::{
    AttributeDifferences, CopyOptions, Fsync, Refusal,
    copy::{
        attributes::{Births, WantedAttributes},
        compared::{add_xattrs, of_stats},
        copy_entry::CopyEntry,
        directory::{Closing, Directory, Entered},
        name_at::{NameAt, remove_replaced},
        run::{Concurrency, CopyRun},
        staged_dir::{StageSource, StagedDir, birth_mode},
    },
    error::{Attempt, CopyFailure, at_sink},
    fs::{
        beneath::{open_by_force, open_directory},
        list::directory_flags,
    },
    holder::Holder,
    identity::{Id, kind},
    xattrs::EntryXattrs,
};

/// A directory that was created or found.
struct MadeDirectory {
    fd: Option<OwnedFd>,
    stage: Option<StagedDir>,
    is_new: bool,
    /// `true` if the directory replaces an entry of another type.
    is_replacement: bool,
    /// The mode that the kernel would give to a new directory with the final name. Set only if the mode cannot be
    /// computed, because the staging directory has another mode.
    born: Option<u32>,
}

impl MadeDirectory {
    /// Returns a directory that was created under its final name.
    fn new(fd: OwnedFd, is_replacement: bool) -> Self {
        Self { fd: Some(fd), ..Self::unmade(is_replacement) }
    }

    /// Returns a directory that a dry run does not create.
    fn unmade(is_replacement: bool) -> Self {
        Self { fd: None, stage: None, is_new: true, is_replacement, born: None }
    }
}

/// Creates the directory for `entry`, or merges into an existing one. The source must be open.
pub(crate) fn enter(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    source: BorrowedFd<'_>,
    stat: &Stat,
) -> Attempt<Arc<Directory>> {
    let parent = entry.directory;
    // Extended attributes are read now, so that the source need not stay open. They are set last, because a default ACL
    // would affect the entries created inside.
    let xattrs = EntryXattrs::from(&Holder::Fd(source), run.options.preserve).unwrap_or_else(|e| {
        run.incomplete(entry.error(e));
        EntryXattrs::default()
    });
    let made = make(run, entry, source, stat)?;
    let (mut births, mut may_tell) = (parent.births, parent.may_fail_at_close);
    let (mut closing, mut own_id) = (None, Id::default());
    let mut differs = AttributeDifferences::default();
    if let Some(fd) = &made.fd {
        let mut own = fstat(fd).map_err(at_sink("fstat"))?;
        let born = own.st_mode & 0o7777;
        if made.is_new {
            grant_owner(fd.as_fd(), &mut own)?;
        } else {
            may_tell = may_fail_at_close(fd).unwrap_or(true);
        }
        own_id = Id::of(&own);
        births = if made.is_new { births.inside(&own) } else { Births::of(run, fd.as_fd(), &own) };
        let born = made.is_new.then_some(made.born.unwrap_or(born));
        if run.options.sync.is_some() && !made.is_new {
            differs = of_stats(run, fd.as_fd(), stat, &own);
            add_xattrs(run, [&Holder::Fd(source), &Holder::Fd(fd.as_fd())], &mut differs)?;
        }
        differs.kind = made.is_replacement;
        let wanted = wanted(run, stat, &own, born, births);
        closing = attributes_to_apply(run, stat, xattrs, wanted);
        if entry.named_by_caller() {
            run.note_grown(Id::of(&own), [entry.source_path(), entry.destination_path()]);
        }
    }
    if own_id == Id::of(stat) {
        return Err(CopyFailure::Refused(Refusal::SameFile(entry.source_path())));
    }
    let MadeDirectory { fd, stage, is_new, .. } = made;
    let entered = Entered {
        paths: entry.paths(),
        fd,
        stage,
        is_new,
        own: own_id,
        births,
        may_fail_at_close: may_tell,
        source: Id::of(stat),
        device: if entry.named_by_caller() { stat.st_dev } else { parent.device },
        closing,
        differs,
    };
    Ok(Directory::below(run, parent, entered))
}

/// Returns the attributes to apply when the directory is complete; `None` if nothing is to be done then.
fn attributes_to_apply(
    run: &CopyRun<'_>,
    stat: &Stat,
    xattrs: EntryXattrs,
    wanted: Option<WantedAttributes>,
) -> Option<Closing> {
    let is_needed = wanted.is_some() || run.options.fsync == Fsync::Always;
    (is_needed && !run.options.dry_run).then(|| Closing {
        xattrs,
        stat: *stat,
        wanted: wanted.unwrap_or_default(),
    })
}

/// Gives the owner access to a new directory, because the copy must fill it. A default ACL of its parent directory may
/// have denied this access.
fn grant_owner(fd: BorrowedFd<'_>, own: &mut Stat) -> Attempt<()> {
    if own.st_mode & 0o700 != 0o700 {
        own.st_mode |= 0o700;
        let open = Mode::from_raw_mode(own.st_mode & 0o7777);
        fchmod(fd, open).map_err(at_sink("fchmod"))?;
    }
    Ok(())
}

/// Creates the directory for `entry`, or finds the existing one. The source must be open.
fn make(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    source: BorrowedFd<'_>,
    stat: &Stat,
) -> Attempt<MadeDirectory> {
    let Some(dir) = entry.directory.open()? else {
        return Ok(MadeDirectory::unmade(false));
    };
    let dir = dir.as_fd();
    let name_at = NameAt { dir, name: entry.name };
    let mut is_replaced = false;
    if !entry.directory.is_fresh {
        match statat(dir, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if kind(&there) == FileType::Directory => return merge(name_at, false),
            Ok(there) if keeps_link(run.options, name_at, &there) => return merge(name_at, true),
            // A sync removes the replaced entry when the new directory is complete.
            Ok(_) if run.options.sync.is_some() => is_replaced = true,
            Ok(_) => return Err(CopyFailure::Refused(Refusal::OverNonDirectory)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(CopyFailure::Sink("newfstatat", errno, 0)),
        }
    }
    if run.options.dry_run {
        return Ok(MadeDirectory::unmade(is_replaced));
    }
    // In an append-only directory a staging directory could not be renamed.
    let needs_none = entry.directory.is_staged || run.concurrency == Concurrency::Linkers;
    if needs_none || entry.directory.is_append_only() {
        if is_replaced {
            remove_replaced(run.options.kept.as_deref(), name_at, || {
                entry.path_below(run.options)
            })?;
        }
        return make_unstaged(name_at, first_mode(run, stat), is_replaced);
    }
    let (fd, stage) =
        StagedDir::make(name_at, run.options.resume, StageSource::Folder(source, stat))?;
    if let Some(left) = &stage.left_alone {
        run.left_alone(|| entry.destination_path(), left);
    }
    // The mode of a staging directory is 0700, because its entries get owner and mode only step by step. If the final
    // mode cannot be computed, `birth_mode` asks the kernel for it.
    let reckoned =
        run.options.preserve.mode || (run.me.umask().is_some() && !entry.directory.births.acl);
    let first = first_mode(run, stat);
    let born = if reckoned { None } else { Some(birth_mode(fd.as_fd(), first)?) };
    Ok(MadeDirectory { stage: Some(stage), born, ..MadeDirectory::new(fd, is_replaced) })
}

/// Creates a directory under its final name.
fn make_unstaged(name_at: NameAt<'_>, mode: u32, is_replaced: bool) -> Attempt<MadeDirectory> {
    let NameAt { dir, name } = name_at;
    match mkdirat(dir, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let fd = open_by_force(dir, name).map_err(|errno| {
                // Removes the directory, because a retry would take it for one that existed before.
                let _ = unlinkat(dir, name, AtFlags::REMOVEDIR);
                CopyFailure::Sink("openat", errno, 0)
            })?;
            Ok(MadeDirectory::new(fd, is_replaced))
        }
        // This copy may have created it: the destination may treat two names as equal (case folding).
        Err(Errno::EXIST) => merge(name_at, false),
        Err(errno) => Err(CopyFailure::Sink("mkdirat", errno, 0)),
    }
}

/// Returns `true` if a symbolic link in the destination is kept and its target directory is used.
fn keeps_link(options: &CopyOptions, NameAt { dir, name }: NameAt<'_>, there: &Stat) -> bool {
    options.keep_directory_symlink
        && kind(there) == FileType::Symlink
        && !is_trap_at(dir, name).unwrap_or(true)
        && statat(dir, name, AtFlags::empty()).is_ok_and(|to| kind(&to) == FileType::Directory)
}

fn merge(NameAt { dir, name }: NameAt<'_>, follow: bool) -> Attempt<MadeDirectory> {
    let fd = open_directory(dir, name, directory_flags(follow)).map_err(at_sink("openat"))?;
    Ok(MadeDirectory { is_new: false, ..MadeDirectory::new(fd, false) })
}

/// Returns the mode with which a directory is created. It includes full access for the owner, because this copy
/// must fill it.
fn first_mode(run: &CopyRun<'_>, stat: &Stat) -> u32 {
    run.options.directory_mode(stat.st_mode) | 0o700
}

/// Returns the attributes to set when the directory is complete; `None` if there are none.
fn wanted(
    run: &CopyRun<'_>,
    stat: &Stat,
    own: &Stat,
    born: Option<u32>,
    births: Births,
) -> Option<WantedAttributes> {
    let CopyOptions { preserve, .. } = run.options;
    let has = own.st_mode & 0o7777;
    let mode = match born {
        _ if preserve.mode => stat.st_mode & 0o7777,
        None => has,
        Some(born) => {
            let bits = run.options.directory_mode(stat.st_mode);
            // With a default ACL the umask has no effect (umask(2)). The directory then keeps the mode from the kernel,
            // without the bits that were added only for the copy.
            let known = run.me.umask().filter(|_| !births.acl);
            let bits = known.map_or(born & (bits | !0o700), |umask| bits & !umask);
            // Special bits that the kernel has set, such as set-group-id inherited from the parent, are kept too.
            bits | (has & 0o7000)
        }
    };
    let owner = preserve.owner.then_some((stat.st_uid, stat.st_gid));
    let has_owner = Some((own.st_uid, own.st_gid));
    let nothing = mode == has
        && (owner.is_none() || owner == has_owner)
        && !preserve.times
        && !preserve.looks_at_xattrs();
    (!nothing).then_some(WantedAttributes {
        mode: Some(mode),
        has_mode: Some(has),
        owner,
        has_owner,
        born_with_acl: births.acl,
    })
}
