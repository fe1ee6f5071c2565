//! The mode a new file is made with, so that it need not be changed afterwards where that can be had.

use rustix::fs::{Stat, fstat};
use std::os::fd::BorrowedFd;
use thalweg_core::atomic_file::ownership::birth_mode;

use crate::{
    copy::{
        attributes::Wanted,
        copy_entry::CopyEntry,
        dest::{conflict::Existing, publish::Sink, write_target::WriteTarget},
        run::Run,
    },
    error::{Attempt, at_sink},
};

/// The mode a file is made with, and the attributes it should have in the end.
pub(crate) fn modes(
    run: &Run<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    (there, write_target): (Option<&Existing>, WriteTarget),
) -> (u32, Wanted) {
    let keep = run.options.preserve;
    let births = entry.directory.births;
    let full = run.options.new_mode.unwrap_or(stat.st_mode) & 0o7777;
    let owner = keep.owner.then_some((stat.st_uid, stat.st_gid));
    let mut wanted = Wanted {
        mode: keep.mode.then_some(full),
        has_mode: None,
        owner,
        has_owner: births.owner,
        born_with_acl: births.acl,
    };
    // What the mode will be, if the kernel follows no rules but the ones known.
    let born = |mode: u32| run.me.umask().filter(|_| !births.acl).map(|umask| mode & !umask);
    match (write_target, there) {
        (WriteTarget::Existing, Some(there)) => {
            wanted.has_owner = Some((there.stat.st_uid, there.stat.st_gid));
            // Used where it cannot be opened, and a new file takes its place.
            (full & 0o777, wanted)
        }
        (_, Some(there)) if !keep.mode || !keep.owner => {
            wanted.has_owner = None;
            let kept = (there.stat.st_uid, there.stat.st_gid);
            let of_new = births.owner.unwrap_or((run.me.uid, run.me.gid));
            if !keep.owner && kept != of_new {
                wanted.owner = Some(kept);
            }
            wanted.mode = wanted.mode.or(Some(as_written(run.me.uid, there.stat.st_mode & 0o7777)));
            (0o600, wanted)
        }
        _ if keep.mode => {
            let hidden = entry.directory.is_staged || write_target == WriteTarget::Nameless;
            let changes = owner.is_some() && owner != births.owner && !hidden;
            let mode = full & if changes { 0o700 } else { 0o777 };
            wanted.has_mode = born(mode);
            (mode, wanted)
        }
        _ => (full & 0o777, wanted),
    }
}

/// Corrects what is known of an opened sink by what it is: a part has the mode 0600 until it is whole, whatever it was to
/// be made with, and what was there before may have another owner than it had when its name was looked at.
pub(crate) fn look_at(
    run: &Run<'_>,
    entry: &CopyEntry<'_>,
    (sink, dir): (&Sink<'_>, BorrowedFd<'_>),
    mode: u32,
    wanted: &mut Wanted,
) -> Attempt<()> {
    let is_existing = matches!(sink, Sink::Existing(_));
    if !sink.is_part() && !is_existing {
        return Ok(());
    }
    let own = fstat(sink.fd()).map_err(at_sink("fstat"))?;
    wanted.has_owner = Some((own.st_uid, own.st_gid));
    if is_existing {
        return Ok(());
    }
    wanted.has_mode = Some(own.st_mode & 0o7777);
    let known = run.me.umask().filter(|_| !entry.directory.births.acl).map(|umask| mode & !umask);
    let born = || known.unwrap_or_else(|| birth_mode(dir, mode));
    wanted.mode = Some(wanted.mode.unwrap_or_else(born));
    Ok(())
}

/// The mode of a file after this user has written into it: from other users than root the kernel takes the bits by
/// which it runs as its owner or its group, and a file that takes its place has new contents as well.
pub(crate) fn as_written(uid: u32, mode: u32) -> u32 {
    match mode {
        _ if uid == 0 => mode,
        // Without the right to run it, the bit of the group means a lock.
        mode if mode & 0o010 == 0 => mode & !0o4000,
        mode => mode & !0o6000,
    }
}
