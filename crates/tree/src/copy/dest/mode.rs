//! The mode with which a new file is created, chosen so that it need not be changed later if possible.

use rustix::fs::{Stat, fstat};
use std::os::fd::BorrowedFd;
use thalweg_core::atomic_file::ownership::birth_mode;

use crate::{
    copy::{
        attributes::WantedAttributes,
        copy_entry::CopyEntry,
        dest::{existing::Existing, publish::DestinationFile, write_target::WriteTarget},
        run::CopyRun,
    },
    error::{Attempt, at_sink},
};

/// Returns the mode with which a file is created, and the attributes that it must have in the end.
pub(crate) fn modes(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    there: Option<&Existing>,
    write_target: WriteTarget,
) -> (u32, WantedAttributes) {
    let keep = run.options.preserve;
    let births = entry.directory.births;
    let full = run.options.new_mode.unwrap_or(stat.st_mode) & 0o7777;
    let owner = keep.owner.then_some((stat.st_uid, stat.st_gid));
    let mut wanted = WantedAttributes {
        mode: keep.mode.then_some(full),
        has_mode: None,
        owner,
        has_owner: births.owner,
        born_with_acl: births.acl,
    };
    // Computes the mode of a new file; `None` if a default ACL also affects it or the umask is unknown.
    let born = |mode: u32| run.me.umask().filter(|_| !births.acl).map(|umask| mode & !umask);
    match (write_target, there) {
        (WriteTarget::Existing, Some(there)) => {
            wanted.has_owner = Some((there.stat.st_uid, there.stat.st_gid));
            // A new file with this mode is created only if the existing file cannot be opened.
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

/// Updates the known attributes of an opened file by `fstat`. A partial file has mode 0600 until it is complete,
/// whatever mode was requested. An existing file may have got another owner since its name was examined.
pub(crate) fn look_at(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    sink: &DestinationFile<'_>,
    dir: BorrowedFd<'_>,
    mode: u32,
    wanted: &mut WantedAttributes,
) -> Attempt<()> {
    let is_existing = matches!(sink, DestinationFile::Existing(_));
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

/// Returns the mode that a file has after user `uid` has written into it. Unless the user is root, the kernel clears
/// the set-id bits on write. A replacement file has new contents too, so its bits are cleared likewise.
pub(crate) fn as_written(uid: u32, mode: u32) -> u32 {
    match mode {
        _ if uid == 0 => mode,
        // Without the execute bit of the group, the set-group-id bit means mandatory locking.
        mode if mode & 0o010 == 0 => mode & !0o4000,
        mode => mode & !0o6000,
    }
}
