//! Owner, extended attributes, lists, mode and times, in the order in which none undoes another: a
//! change of owner clears set-id bits, a mode may forbid to set attributes and depends on whether the
//! list could be kept, and everything touches times.

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
    copy::{name_at::NameAt, run::Run},
    error::{Attempt, at_sink},
    xattrs::{self, ALL, Holder, Taken},
};

/// What a new file should have in the end, and what it is known to have already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Permission bits; `None`: as they are.
    pub mode: Option<u32>,
    /// Permission bits it has, if known.
    pub has_mode: Option<u32>,
    /// Owner and group; `None`: as they are.
    pub owner: Option<(u32, u32)>,
    /// Owner and group it has, if known.
    pub has_owner: Option<(u32, u32)>,
    /// It was born with a list that its directory gave it.
    pub born_with_acl: bool,
}

impl Wanted {
    /// Whether a file that was looked at has the mode and the owner.
    pub fn is_had_by(&self, there: &Stat) -> bool {
        self.mode.is_none_or(|mode| mode == there.st_mode & 0o7777)
            && self.owner.is_none_or(|owner| owner == (there.st_uid, there.st_gid))
    }
}

/// What a file born in a directory gets by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Births {
    /// Owner and group, if known.
    pub owner: Option<(u32, u32)>,
    /// A list, by the default list of the directory.
    pub acl: bool,
}

impl Births {
    /// Asks the kernel about an existing directory.
    pub fn of(run: &Run<'_>, dir: BorrowedFd<'_>, stat: &Stat) -> Self {
        let acl = xattrs::has_default_list(dir);
        let group = if stat.st_mode & 0o2000 == 0 { run.me.gid } else { stat.st_gid };
        let owner = run.me.owns_what_it_makes.then_some((run.me.uid, group));
        Self { owner, acl }
    }

    /// The same for a new directory inside: the kernel passes both on.
    pub fn inside(self, own: &Stat) -> Self {
        let group = if own.st_mode & 0o2000 == 0 { None } else { Some(own.st_gid) };
        let owner = self.owner.map(|(uid, gid)| (uid, group.unwrap_or(gid)));
        Self { owner, ..self }
    }
}

/// Set-user-id, set-group-id and sticky.
pub(crate) const SPECIAL: u32 = 0o7000;
/// The times of a source, as they are set on its copy.
pub(crate) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

/// An open file or directory, and its path if there is something to be told of it.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a> {
    pub fd: BorrowedFd<'a>,
    pub path: &'a dyn Fn() -> PathBuf,
}

/// Dresses an open file or directory. Goes on after a failure and returns the first one.
pub(crate) fn apply_attributes(
    run: &Run<'_>,
    Body { fd: sink, path }: Body<'_>,
    xattrs: &Taken,
    stat: &Stat,
    wanted: &Wanted,
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

/// Changes the owner as far as permitted to `me`: `Ok(false)` if it was not, which only surprises root.
pub(crate) fn own(
    me: u32,
    uid: u32,
    gid: u32,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    match chown(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) if me != 0 => {
            // A group one belongs to may still be given.
            let _ = chown(None, Some(Gid::from_raw(gid)));
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Extended attributes of a file that is replaced, kept by the one that takes its place: to write
/// into it would have left them. Best effort, as nobody asked for them.
pub(crate) fn inherit(name_at: NameAt<'_>, sink: BorrowedFd<'_>) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(old) = openat(name_at.dir, name_at.name, flags, Mode::empty()) else { return };
    let all = Preserve::all();
    let taken = Taken::from(&Holder::of_path_fd(old.as_fd()), all).map(Taken::without_capabilities);
    let _ = taken.map(|taken| taken.give(&Holder::Fd(sink), all, false));
}
