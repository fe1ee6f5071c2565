//! Examines the existing entry under the name of a copy, and decides whether the copy may replace it.

use rustix::fs::{Access, AtFlags, FileType, Stat, StatFs, accessat, fstatfs, statat};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_core::atomic_file::ownership::{Followed, follow, is_trap_at};
use thalweg_sys::Errno;

use crate::{
    Backup, Becomes, CopyOptions, Refusal, Skip, Update,
    copy::{
        copy_entry::CopyEntry,
        dest::same::{Relation, relation},
        name_at::NameAt,
        run::Run,
    },
    error::{Attempt, Failure, at_sink},
    identity::{ctime, kind, mtime},
    times,
};

/// The decision for the name of a copy.
pub(crate) enum Verdict {
    /// The name is free.
    New,
    /// The name is a symbolic link to this free name, and the copy is created there.
    NewBehindLink(SymlinkTarget),
    /// The copy replaces this entry.
    Replace(Existing),
    /// The copy is skipped because this entry exists.
    Skip(Skip, Existing),
}

/// The final target of a symbolic link.
pub(crate) struct SymlinkTarget {
    dir: OwnedFd,
    name: CString,
}

impl SymlinkTarget {
    /// Returns its directory and name.
    pub fn name_at(&self) -> NameAt<'_> {
        NameAt { dir: self.dir.as_fd(), name: &self.name }
    }
}

/// The destination of one file: a new file, or an existing one that is replaced.
#[derive(Default)]
pub(crate) struct Destination {
    /// The file that is replaced.
    pub existing: Option<Existing>,
    /// The target of a dangling symbolic link, if the copy is created there.
    link_target: Option<SymlinkTarget>,
}

impl Destination {
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Replace(existing) => Self { existing: Some(existing), link_target: None },
            Verdict::NewBehindLink(target) => Self { existing: None, link_target: Some(target) },
            Verdict::New | Verdict::Skip(..) => Self::default(),
        }
    }

    /// Returns the name that the copy gets. `here`: the name of the entry itself.
    pub fn name_at<'a>(&'a self, here: NameAt<'a>) -> NameAt<'a> {
        let free = self.link_target.as_ref().map_or(here, SymlinkTarget::name_at);
        self.existing.as_ref().map_or(free, |existing| existing.name_at(here))
    }

    /// `true` if the destination is reached through a symbolic link, possibly in another directory.
    pub fn is_elsewhere(&self) -> bool {
        self.link_target.is_some() || self.existing.as_ref().is_some_and(Existing::is_behind_link)
    }
}

/// An existing entry that is replaced.
pub(crate) struct Existing {
    /// The attributes of the entry, or of its target if symbolic links are followed.
    pub stat: Stat,
    // The location of the entry, if a symbolic link led to it.
    through: Option<SymlinkTarget>,
    /// `true` if a regular file keeps its inode, because no other file could be renamed over it.
    pub keeps_inode: bool,
    /// `true` if the entry is removed, and the copy inherits nothing from it.
    pub is_removed: bool,
    /// `true` if size and times indicate that an earlier run finished it, but there is no evidence that its data is
    /// intact. It must be compared with the source.
    pub is_doubted: bool,
}

impl Existing {
    /// Returns the location of the entry. Its replacement is created in this directory.
    pub fn name_at<'a>(&'a self, here: NameAt<'a>) -> NameAt<'a> {
        self.through.as_ref().map_or(here, SymlinkTarget::name_at)
    }

    /// Returns a copy of an entry that was found under the name itself; `None` if a symbolic link led to it.
    pub fn in_place(&self) -> Option<Self> {
        let Self { stat, keeps_inode, is_removed, is_doubted, .. } = *self;
        let is_here = self.through.is_none();
        is_here.then_some(Self { stat, through: None, keeps_inode, is_removed, is_doubted })
    }

    /// Returns `true` if a symbolic link led to the entry, possibly in another directory.
    pub fn is_behind_link(&self) -> bool {
        self.through.is_some()
    }

    /// Returns `true` for devices, pipes and sockets: they are written to and never replaced by a file.
    pub fn is_special(&self) -> bool {
        kind(&self.stat) != FileType::RegularFile && !self.is_taken_away()
    }

    /// Returns `true` if the bytes are written into the existing entry, and not into a new file that replaces it.
    pub fn is_written_into(&self, options: &CopyOptions) -> bool {
        self.is_special() || self.keeps_inode || (options.inplace && !self.is_taken_away())
    }

    /// Returns `true` if bytes written to it can be read back.
    pub fn can_be_read_again(&self) -> bool {
        !self.is_special() || kind(&self.stat) == FileType::BlockDevice
    }

    /// Returns `true` if a copy of attributes alone leaves the entry in place.
    pub fn keeps_contents(&self, options: &CopyOptions) -> bool {
        !self.is_taken_away() && options.backup == Backup::None
    }

    /// Returns `true` if the copy inherits nothing from the entry: it is a symbolic link that is not followed, or the
    /// caller requested its removal.
    pub fn is_taken_away(&self) -> bool {
        self.is_removed || self.is_link()
    }

    /// Returns `true` if GNU `cp` unlinks this destination before it creates the copy of `source`, and reports that
    /// with `-v`.
    pub fn is_unlinked_by_cp(&self, options: &CopyOptions, source: &Stat, is_named: bool) -> bool {
        let has_names = options.preserve.links && self.stat.st_nlink > 1;
        let is_node = kind(source) != FileType::RegularFile && !options.follows(is_named);
        let makes_new = options.becomes == Becomes::Copy && !options.attributes_only;
        options.backup == Backup::None && (self.is_removed || (makes_new && (has_names || is_node)))
    }

    /// Returns `true` if the entry is a symbolic link that was not followed.
    fn is_link(&self) -> bool {
        kind(&self.stat) == FileType::Symlink
    }
}

/// Examines the name of a copy. For a regular source, a symbolic link there is followed, as in GNU `cp`; other
/// sources replace the link.
pub(crate) fn resolve_conflict(
    run: &Run<'_>,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
) -> Attempt<Verdict> {
    let options = run.options;
    let look = |flags| statat(dir, entry.name, flags);
    let mut stat = match look(AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Verdict::New),
        Err(errno) => return Err(Failure::Sink("newfstatat", errno, 0)),
    };
    let as_content = kind(source) == FileType::RegularFile || options.reads_specials();
    let as_content = as_content && kind(source) != FileType::Symlink;
    let (mut through, mut keeps_inode, mut is_followed) = (None, false, false);
    if kind(&stat) == FileType::Symlink && as_content && !options.replaces_links() {
        stat = match look(AtFlags::empty()) {
            Err(Errno::NOENT) => {
                let free = options.through_dangling.then(|| link_target(dir, entry.name));
                let free = free.transpose()?.flatten();
                return free.map(Verdict::NewBehindLink).ok_or(Failure::Refused(Refusal::Dangling));
            }
            // A cycle of links leads nowhere. With -f it is removed.
            Err(Errno::LOOP) if options.force => stat,
            answer => {
                is_followed = true;
                answer.map_err(at_sink("newfstatat"))?
            }
        };
        if is_followed {
            through = link_target(dir, entry.name)?;
            if let Some(SymlinkTarget { dir, name }) = &through {
                // The link may have changed since it was followed. The decision is about the file at the location
                // where the copy goes.
                let there = statat(dir, &**name, AtFlags::SYMLINK_NOFOLLOW);
                stat = there.map_err(at_sink("newfstatat"))?;
            }
            keeps_inode = through.is_none() && kind(&stat) == FileType::RegularFile;
        }
    }
    let place = through.as_ref().map_or(NameAt { dir, name: entry.name }, SymlinkTarget::name_at);
    let is_trap = as_content && is_trap(run, place, &stat)?;
    if is_trap && (kind(&stat) != FileType::RegularFile || options.inplace) {
        return Err(Failure::Refused(Refusal::Trap));
    }
    if kind(&stat) != FileType::RegularFile {
        through = None;
    }
    // A file that becomes a backup does not keep its name either.
    let is_kept = options.backup != Backup::None && kind(&stat) == FileType::RegularFile;
    // The replacement of a file that another user planted inherits nothing from it: not its owner, mode or ACL.
    let mut is_removed = options.remove_destination || is_kept || is_trap;
    // As in GNU `cp`, a file that cannot be opened is removed, or the link to it.
    if options.force
        && as_content
        && !(is_removed || options.attributes_only)
        && kind(&stat) == FileType::RegularFile
        && run.me.uid != 0
        && may_be_written(NameAt { dir, name: entry.name }).is_err()
    {
        (through, keeps_inode, is_removed) = (None, false, true);
    }
    // In an append-only directory no other file could be renamed over it.
    keeps_inode |= through.is_none()
        && !is_removed
        && kind(&stat) == FileType::RegularFile
        && entry.directory.is_append_only();
    let is_doubted = options.resume && !entry.directory.evidence.vouches_for(&stat);
    let there = Existing { stat, through, keeps_inode, is_removed, is_doubted };
    if options.update == Update::NoneFail {
        return Err(Failure::Refused(Refusal::NotReplaced));
    }
    if options.replaces_nothing() {
        return Ok(Verdict::Skip(Skip::Exists, there));
    }
    let fs = || fstatfs(there.name_at(NameAt { dir, name: entry.name }).dir);
    let there_name = (!is_followed).then_some(&there.stat);
    match relation(options, entry, dir, (source, &there.stat, there_name))? {
        Relation::Apart => {}
        Relation::Linked => return Ok(Verdict::Skip(Skip::Linked, there)),
        Relation::Same => return Err(Failure::Refused(Refusal::SameFile(entry.source_path()))),
    }
    if options.update == Update::Older && times::order_of_files(&there.stat, source, fs).is_ge() {
        return Ok(Verdict::Skip(Skip::Newer, there));
    }
    if let Some(reason) = reason_to_skip(run, entry, source, &there.stat, fs) {
        return Ok(Verdict::Skip(reason, there));
    }
    if entry.named_by_caller() && run.second.contains(entry.source) {
        return Err(Failure::Refused(Refusal::JustCreated));
    }
    if kind(&there.stat) == FileType::Directory {
        return Err(Failure::Refused(Refusal::OverDirectory));
    }
    let may_go = options.force || options.interactive || options.backup != Backup::None;
    // As in GNU `cp`, a symbolic link that is not followed, or a special file, replaces an existing entry by rename.
    let gives_way =
        kind(source) != FileType::RegularFile && !options.follows(entry.named_by_caller());
    let may_go = may_go || (gives_way && !options.attributes_only);
    let is_made_anew = options.becomes != Becomes::Copy || (options.attributes_only && !as_content);
    if is_made_anew && !may_go && !options.remove_destination {
        let hard = options.becomes == Becomes::HardLink;
        let call = if hard { "linkat" } else { "symlinkat" };
        return Err(Failure::Sink(call, Errno::EXIST, 0));
    }
    if as_content {
        may_be_replaced(run, NameAt { dir, name: entry.name }, &there)?;
    }
    // Checked now, because otherwise the rename would fail only after everything was written.
    if there.is_taken_away() && entry.directory.is_append_only() {
        return Err(Failure::Sink("renameat2", Errno::PERM, 0));
    }
    Ok(Verdict::Replace(there))
}

/// Returns `true` if another user may have created the existing entry so that this process writes into it.
fn is_trap(run: &Run<'_>, place: NameAt<'_>, there: &Stat) -> Attempt<bool> {
    let is_placed =
        there.st_uid != run.me.uid && matches!(kind(there), FileType::RegularFile | FileType::Fifo);
    if !is_placed {
        return Ok(false);
    }
    is_trap_at(place.dir, place.name).map_err(at_sink("newfstatat"))
}

/// Checks that the user may write the existing file. A rename needs no such permission, but without this check every
/// write-protected file could be replaced.
pub(crate) fn may_be_replaced(run: &Run<'_>, here: NameAt<'_>, there: &Existing) -> Attempt<()> {
    if run.options.force || run.me.uid == 0 || there.is_taken_away() {
        return Ok(());
    }
    may_be_written(there.name_at(here))
}

fn may_be_written(name_at: NameAt<'_>) -> Attempt<()> {
    let answer = accessat(name_at.dir, name_at.name, Access::WRITE_OK, AtFlags::EACCESS);
    answer.map_err(at_sink("faccessat2 W_OK"))
}

fn reason_to_skip(
    run: &Run<'_>,
    entry: &CopyEntry<'_>,
    source: &Stat,
    there: &Stat,
    fs: impl FnOnce() -> Result<StatFs, Errno>,
) -> Option<Skip> {
    let options = run.options;
    let is_done = || is_done(options, source, there, fs);
    if options.resume && is_own(run, entry, (source, there)) && is_done() {
        return Some(Skip::Done);
    }
    let declined = options.interactive && !run.may_replace(&entry.destination_path());
    declined.then_some(Skip::Declined)
}

/// Returns `true` if the existing file has the owner of a copy made by this process. That is the owner at creation,
/// or the preserved owner of the source. If the file system chooses owners itself (NFS, FUSE), the owner is unknown
/// and the result is `true`.
fn is_own(run: &Run<'_>, entry: &CopyEntry<'_>, (source, there): (&Stat, &Stat)) -> bool {
    let keeps_owner = run.options.preserve.owner;
    let owner = entry.directory.births.owner;
    let is_as_kept = keeps_owner && there.st_uid == source.st_uid;
    owner.is_none_or(|(uid, _)| there.st_uid == uid) || is_as_kept
}

/// Returns `true` if size and times indicate that an earlier run finished this file. Times are set last, so equal
/// times mean that all bytes were written; [`Evidence`](crate::evidence::Evidence) decides whether they are still
/// intact. If times are not preserved, the file must be newer than the last change of the source.
fn is_done(
    options: &CopyOptions,
    source: &Stat,
    there: &Stat,
    fs: impl FnOnce() -> Result<StatFs, Errno>,
) -> bool {
    let same_kind = kind(source) == kind(there) && kind(source) == FileType::RegularFile;
    let time = if options.preserve.times {
        times::is_same(there, source, fs)
    } else {
        mtime(there) > mtime(source) && mtime(there) > ctime(source)
    };
    same_kind && source.st_size == there.st_size && time
}

/// Returns the directory and the name that a symbolic link finally leads to, existing or not. Returns `None` for a
/// link of `/proc` (`/dev/stdout`, `/dev/fd/3`). Such a link leads to an open file, and its text need not be the name
/// of that file.
fn link_target(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<Option<SymlinkTarget>> {
    match follow(dir, name).map_err(at_sink("readlinkat"))? {
        Followed::At(dir, name) => Ok(Some(SymlinkTarget { dir, name })),
        Followed::Magic => Ok(None),
        Followed::Trap => Err(Failure::Refused(Refusal::Trap)),
    }
}
