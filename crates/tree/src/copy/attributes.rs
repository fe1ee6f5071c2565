//! Applies owner, extended attributes, ACLs, mode and times, in an order in which no step undoes an earlier one. A
//! change of owner clears set-id bits. A restrictive mode may forbid setting attributes. The final mode depends on
//! whether the ACL could be kept. Every step changes the times, so they are set last.

use rustix::fs::{
    Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fstat, futimens, openat,
};
use std::{
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};
use thalweg_sys::Errno;

use crate::{
    Preserve,
    copy::{name_at::NameAt, run::CopyRun},
    error::{Attempt, CopyFailure, at_sink},
    xattrs::{self, ALL, Holder, SourceXattrs},
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

/// An open file or directory. Its path is computed only if an event or error needs it.
#[derive(Clone, Copy)]
pub(crate) struct OpenEntry<'a> {
    pub fd: BorrowedFd<'a>,
    pub path: &'a dyn Fn() -> PathBuf,
}

/// Applies all attributes to an open file or directory. Continues after a failure and returns the first one.
pub(crate) fn apply_attributes(
    run: &CopyRun<'_>,
    OpenEntry { fd: sink, path }: OpenEntry<'_>,
    xattrs: &SourceXattrs,
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
    let mut mode = wanted.mode;
    let mut has_mode = wanted.has_mode;
    if wanted.owner.is_some() && wanted.owner != wanted.has_owner {
        let (uid, gid) = wanted.owner.unwrap_or_default();
        match own(run.me.uid, uid, gid, |uid, gid| fchown(sink, uid, gid)) {
            Ok(true) => has_mode = None,
            refused => {
                mode = mode.map(|mode| mode & !SPECIAL);
                note(refused.map(drop).map_err(at_sink("fchown")));
            }
        }
    }
    if !xattrs.is_empty() || (wanted.born_with_acl && keep.acl) {
        let has = fstat(sink).map_or(0o600, |stat| stat.st_mode & 0o7777);
        let is_closed = xattrs.ask_for_write_permission() && has & 0o200 == 0 && run.me.uid != 0;
        if is_closed {
            note(fchmod(sink, Mode::RWXU).map_err(at_sink("fchmod")));
        }
        let given = xattrs.give(&Holder::Fd(sink), keep, wanted.born_with_acl);
        run.dropped(path, &given.dropped);
        if is_closed || given.allowed != ALL {
            mode = Some(mode.unwrap_or(has) & (SPECIAL | given.allowed));
            has_mode = None;
        }
        note(given.answer);
    }
    if let Some(mode) = mode.filter(|mode| Some(*mode) != has_mode) {
        note(fchmod(sink, Mode::from_raw_mode(mode)).map_err(at_sink("fchmod")));
    }
    if keep.times {
        note(futimens(sink, &times(stat)).map_err(at_sink("utimensat")));
    }
    first
}

/// Changes owner and group as far as user `me` may do so. If `me` is not root and may not change the owner, returns
/// `Ok(false)`. For root, that is an error.
pub(crate) fn own(
    me: u32,
    uid: u32,
    gid: u32,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    match chown(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) if me != 0 => {
            // A user that cannot change the owner may still set a group of which it is a member.
            let _ = chown(None, Some(Gid::from_raw(gid)));
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Gives a replacement the extended attributes of the file that it replaces, because a write into that file would have
/// kept them. Ignores failures, because the caller did not request these attributes.
pub(crate) fn inherit(name_at: NameAt<'_>, sink: BorrowedFd<'_>) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(old) = openat(name_at.dir, name_at.name, flags, Mode::empty()) else { return };
    let all = Preserve::all();
    let taken = SourceXattrs::from(&Holder::of_path_fd(old.as_fd()), all)
        .map(SourceXattrs::without_capabilities);
    let _ = taken.map(|taken| taken.give(&Holder::Fd(sink), all, false));
}

/// Removes the extended attributes and ACLs of an open copy that its source does not have.
pub(crate) fn remove_other_xattrs(
    run: &CopyRun<'_>,
    sink: BorrowedFd<'_>,
    source: &SourceXattrs,
) -> Attempt<()> {
    let there = SourceXattrs::from(&Holder::Fd(sink), run.options.preserve);
    let there = there.map_err(|failure| match failure {
        CopyFailure::Source(call, errno) => CopyFailure::Sink(call, errno, 0),
        failure => failure,
    })?;
    source.remove_others(&there.settable_by(run.me.uid), &Holder::Fd(sink))
}
