//! Applies owner, extended attributes, ACLs, mode and times, in an order in which no step undoes an earlier one. A
//! change of owner clears set-id bits. A restrictive mode may forbid setting attributes. The final mode depends on
//! whether the ACL could be kept. Every step changes the times, so they are set last.

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};
use std::{
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};
use thalweg_core::atomic_file::CallFailed;

use crate::{
    Preserve,
    copy::{name_at::NameAt, run::CopyRun},
    error::Attempt,
    holder::{Holder, open_node},
    xattrs::{self, ALL, EntryXattrs},
};

/// The attributes that a new file must have in the end, and those that it is known to have already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WantedAttributes {
    /// Permission bits to set; `None`: leave them unchanged.
    pub mode: Option<u32>,
    /// Current permission bits, if known.
    pub has_mode: Option<u32>,
    /// Owner and group to set; `None`: leave them unchanged.
    pub owner: Option<(u32, u32)>,
    /// Current owner and group, if known.
    pub has_owner: Option<(u32, u32)>,
    /// `true` if the file inherited an ACL from the default ACL of its directory.
    pub born_with_acl: bool,
}

impl WantedAttributes {
    /// Returns the attributes of the source that `keep` selects.
    pub fn of(keep: Preserve, source: &Stat) -> Self {
        Self {
            mode: keep.mode.then_some(source.st_mode & 0o7777),
            owner: keep.owner.then_some((source.st_uid, source.st_gid)),
            ..Self::default()
        }
    }

    /// Returns `true` if a file with the attributes `there` has the wanted mode and owner.
    pub fn is_had_by(&self, there: &Stat) -> bool {
        self.mode.is_none_or(|mode| mode == there.st_mode & 0o7777)
            && self.owner.is_none_or(|owner| owner == (there.st_uid, there.st_gid))
    }
}

/// Attributes that the kernel gives to every file created in a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Births {
    /// Owner and group, if known.
    pub owner: Option<(u32, u32)>,
    /// `true` if the directory has a default ACL, which new files inherit.
    pub acl: bool,
}

impl Births {
    /// Determines the attributes of new files in an existing directory.
    pub fn of(run: &CopyRun<'_>, dir: BorrowedFd<'_>, stat: &Stat) -> Self {
        let acl = xattrs::has_default_list(dir);
        let group = if stat.st_mode & 0o2000 == 0 { run.me.gid } else { stat.st_gid };
        let owner = run.me.owns_what_it_makes.then_some((run.me.uid, group));
        Self { owner, acl }
    }

    /// Determines the attributes of new files in a subdirectory, which inherits default ACL and set-group-id bit.
    pub fn inside(self, own: &Stat) -> Self {
        let group = if own.st_mode & 0o2000 == 0 { None } else { Some(own.st_gid) };
        let owner = self.owner.map(|(uid, gid)| (uid, group.unwrap_or(gid)));
        Self { owner, ..self }
    }
}

/// The set-user-id, set-group-id and sticky bits.
pub(crate) const SPECIAL: u32 = 0o7000;

/// Returns the times of a source in the form that `futimens` takes.
pub(crate) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

/// Returns a modification time in the form that `futimens` takes. The access time stays unchanged.
pub(crate) fn modified(seconds: i64, nanoseconds: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

/// Applies all attributes to an entry. Continues after a failure and returns the first one. `path`: the path of the
/// entry, computed only if an event needs it.
pub(crate) fn apply_attributes(
    run: &CopyRun<'_>,
    holder: Holder<'_>,
    path: &dyn Fn() -> PathBuf,
    xattrs: &EntryXattrs,
    stat: &Stat,
    wanted: &WantedAttributes,
) -> Attempt<()> {
    let keep = run.options.preserve;
    let mut first = Ok(());
    let mut note = |answer: Attempt<()>| {
        if first.is_ok() {
            first = answer;
        }
    };
    let WantedAttributes { mut mode, mut has_mode, .. } = *wanted;
    if let Some((uid, gid)) = wanted.owner.filter(|owner| Some(*owner) != wanted.has_owner) {
        match holder.own(run.me.uid, uid, gid) {
            Ok(true) => has_mode = None,
            refused => {
                // The owner is another one, so set-id bits would grant the rights of the wrong user or group.
                mode = mode.map(|mode| mode & !SPECIAL);
                note(refused.map(drop).map_err(Into::into));
            }
        }
    }
    if !xattrs.is_empty() || (wanted.born_with_acl && keep.acl) {
        let needs_write = xattrs.ask_for_write_permission() && run.me.uid != 0;
        let has = if needs_write { None } else { mode }.or_else(|| holder.mode()).unwrap_or(0o600);
        let is_closed = needs_write && has & 0o200 == 0;
        if is_closed {
            note(holder.chmod(0o700).map_err(Into::into));
        }
        let given = xattrs.give(&holder, keep, wanted.born_with_acl);
        run.dropped(path, &given.dropped);
        if is_closed || given.allowed != ALL {
            mode = Some(mode.unwrap_or(has) & (SPECIAL | given.allowed));
            has_mode = None;
        }
        note(given.answer);
    }
    if let Some(mode) = mode.filter(|mode| Some(*mode) != has_mode) {
        note(holder.chmod(mode).map_err(Into::into));
    }
    if keep.times {
        note(holder.set_times(&times(stat)).map_err(Into::into));
    }
    first
}

/// Gives a replacement the extended attributes of the file that it replaces, because a write into that file would have
/// kept them. Ignores failures, because the caller did not request these attributes.
pub(crate) fn inherit(name_at: NameAt<'_>, sink: BorrowedFd<'_>) {
    let Ok(old) = open_node(name_at.dir, name_at.name) else { return };
    let all = Preserve::all();
    let taken =
        EntryXattrs::from(&Holder::PathFd(old.as_fd()), all).map(EntryXattrs::without_capabilities);
    let _ = taken.map(|taken| taken.give(&Holder::Fd(sink), all, false));
}

/// Removes the extended attributes and ACLs of an open copy that its source does not have.
pub(crate) fn remove_other_xattrs(
    run: &CopyRun<'_>,
    sink: BorrowedFd<'_>,
    source: &EntryXattrs,
) -> Attempt<()> {
    let there = EntryXattrs::from(&Holder::Fd(sink), run.options.preserve);
    // The failed call concerns the copy, not its source.
    let there = there.map_err(CallFailed::from)?.settable_by(run.me.uid);
    source.remove_others(&there, &Holder::Fd(sink))
}
