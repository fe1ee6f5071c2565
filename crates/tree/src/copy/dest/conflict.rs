//! Examines the existing entry under the name of a copy, and decides whether the copy may replace it.

use rustix::fs::{Access, AtFlags, FileType, Stat, StatFs, accessat, fstatfs, statat};
use std::{ffi::CStr, os::fd::BorrowedFd};
use thalweg_core::atomic_file::{
    followed::{Followed, follow},
    ownership::is_trap_at,
};
use thalweg_sys::Errno;

use crate::{
    Backup, Becomes, CopyOptions, OverDirectory, Refusal, Skip, Update,
    copy::{
        copy_entry::CopyEntry,
        dest::{
            existing::{DestinationVerdict, Existing, SymlinkTarget},
            same::{Relation, relation},
        },
        name_at::NameAt,
        run::CopyRun,
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::{ctime, kind, mtime},
    times,
};

/// Examines the name of a copy. If the source is a regular file, a symbolic link with this name is followed, as in GNU
/// `cp`. Any other source replaces the link.
pub(crate) fn resolve_conflict(
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
) -> Attempt<DestinationVerdict> {
    let has_contents = kind(source) == FileType::RegularFile || run.options.reads_specials();
    let as_content = has_contents && kind(source) != FileType::Symlink;
    let here = NameAt { dir, name: entry.name };
    let conflict = Conflict { run, entry, here, source, as_content };
    match conflict.find()? {
        DestinationEntry::Nothing => Ok(DestinationVerdict::New),
        DestinationEntry::DanglingLink(target) => Ok(DestinationVerdict::NewBehindLink(target)),
        DestinationEntry::File { stat, through, is_followed } => {
            let there = conflict.examine(stat, through, is_followed)?;
            conflict.decide(there, is_followed)
        }
    }
}

/// Source and destination name of one copy, for the check of an existing entry.
struct Conflict<'c> {
    run: &'c CopyRun<'c>,
    entry: &'c CopyEntry<'c>,
    here: NameAt<'c>,
    source: &'c Stat,
    /// `true` if the contents of the source are copied, `false` if it is created again, like a symbolic link.
    as_content: bool,
}

/// The entry that has the name of a copy.
enum DestinationEntry {
    Nothing,
    /// A symbolic link to a free name, where the copy is created.
    DanglingLink(SymlinkTarget),
    /// `through`: the directory and name of the file, if a symbolic link led to it. `None` for a link in `/proc`.
    File {
        stat: Stat,
        through: Option<SymlinkTarget>,
        is_followed: bool,
    },
}

impl Conflict<'_> {
    /// Examines the entry with this name. If the entry is a link and the copy writes through it, follows the link.
    fn find(&self) -> Attempt<DestinationEntry> {
        let (NameAt { dir, name }, options) = (self.here, self.run.options);
        let look = |flags| statat(dir, name, flags);
        let stat = match look(AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(DestinationEntry::Nothing),
            Err(errno) => return Err(CopyFailure::Sink("newfstatat", errno, 0)),
        };
        let is_gone =
            options.sync.is_some_and(|rules| rules.over_directory == OverDirectory::AssumeGone);
        if is_gone && options.dry_run && kind(&stat) == FileType::Directory {
            return Ok(DestinationEntry::Nothing);
        }
        let unfollowed = DestinationEntry::File { stat, through: None, is_followed: false };
        if kind(&stat) != FileType::Symlink || !self.as_content || options.replaces_links() {
            return Ok(unfollowed);
        }
        let stat = match look(AtFlags::empty()) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                let free = options.through_dangling.then(|| link_target(dir, name));
                let free = free.transpose()?.flatten();
                return free
                    .map(DestinationEntry::DanglingLink)
                    .ok_or(CopyFailure::Refused(Refusal::Dangling));
            }
            // `stat` fails with ELOOP if links form a cycle. With -f the link is removed.
            Err(Errno::LOOP) if options.force => return Ok(unfollowed),
            Err(errno) => return Err(CopyFailure::Sink("newfstatat", errno, 0)),
        };
        let through = link_target(dir, name)?;
        // The link may have changed since `stat` followed it. The decision must be about the file that the copy will
        // replace.
        let stat = match &through {
            Some(SymlinkTarget { dir, name }) => {
                let there = statat(dir, &**name, AtFlags::SYMLINK_NOFOLLOW);
                there.map_err(at_sink("newfstatat"))?
            }
            None => stat,
        };
        Ok(DestinationEntry::File { stat, through, is_followed: true })
    }

    /// Finds out how the existing entry would be replaced.
    fn examine(
        &self,
        stat: Stat,
        mut through: Option<SymlinkTarget>,
        is_followed: bool,
    ) -> Attempt<Existing> {
        let (run, options) = (self.run, self.run.options);
        let is_regular = kind(&stat) == FileType::RegularFile;
        let mut keeps_inode = is_followed && through.is_none() && is_regular;
        let place = through.as_ref().map_or(self.here, SymlinkTarget::name_at);
        let is_trap = self.as_content && is_trap(run, place, &stat)?;
        if is_trap && (!is_regular || options.inplace) {
            return Err(CopyFailure::Refused(Refusal::Trap));
        }
        if !is_regular {
            through = None;
        }
        // With a backup, the existing file is renamed, so the copy is created as if the file had been removed.
        let is_kept = options.backup != Backup::None && is_regular;
        // The replacement of a file that another user planted does not inherit the owner, mode or ACL of that file.
        let mut is_removed = options.remove_destination || is_kept || is_trap;
        // As in GNU `cp`, a file that cannot be opened is removed. If a link led to the file, the link is removed.
        if options.force
            && self.as_content
            && !(is_removed || options.attributes_only)
            && is_regular
            && run.me.uid != 0
            && may_be_written(self.here).is_err()
        {
            (through, keeps_inode, is_removed) = (None, false, true);
        }
        let directory = self.entry.directory;
        // In an append-only directory, a rename cannot replace the file.
        keeps_inode |= through.is_none() && !is_removed && is_regular && directory.is_append_only();
        // A sync trusts size and time of files with their final names, unless it compares their bytes.
        let trusts = options.sync.is_some() && !directory.is_staged;
        let is_doubted = options.compares_bytes()
            || options.resume && !trusts && !directory.evidence.vouches_for(&stat);
        Ok(Existing { stat, through, keeps_inode, is_removed, is_doubted, renewed: None })
    }

    /// Decides between skipping and replacing the existing entry.
    fn decide(&self, there: Existing, is_followed: bool) -> Attempt<DestinationVerdict> {
        let (run, entry, source) = (self.run, self.entry, self.source);
        let options = run.options;
        if options.update == Update::NoneFail {
            return Err(CopyFailure::Refused(Refusal::NotReplaced));
        }
        if options.replaces_nothing() {
            return Ok(DestinationVerdict::Skip(Skip::Exists, there));
        }
        let fs = || fstatfs(there.name_at(self.here).dir);
        let there_name = (!is_followed).then_some(&there.stat);
        match relation(options, entry, self.here.dir, source, &there.stat, there_name)? {
            Relation::Apart => {}
            Relation::Linked => return Ok(DestinationVerdict::Skip(Skip::Linked, there)),
            Relation::Same => {
                return Err(CopyFailure::Refused(Refusal::SameFile(entry.source_path())));
            }
        }
        if options.update == Update::Older && times::order_of_files(&there.stat, source, fs).is_ge()
        {
            return Ok(DestinationVerdict::Skip(Skip::Newer, there));
        }
        if let Some(reason) = reason_to_skip(run, entry, source, &there.stat, fs) {
            return Ok(DestinationVerdict::Skip(reason, there));
        }
        self.expect_replaceable(&there)?;
        Ok(DestinationVerdict::Replace(there))
    }

    fn expect_replaceable(&self, there: &Existing) -> Attempt<()> {
        let (entry, options) = (self.entry, self.run.options);
        if entry.named_by_caller() && self.run.second.contains(entry.source) {
            return Err(CopyFailure::Refused(Refusal::JustCreated));
        }
        let may_defer =
            options.sync.is_some_and(|rules| rules.over_directory == OverDirectory::Defer);
        if kind(&there.stat) == FileType::Directory && may_defer {
            return Err(CopyFailure::Deferred);
        }
        if kind(&there.stat) == FileType::Directory {
            return Err(CopyFailure::Refused(Refusal::OverDirectory));
        }
        let may_go = options.force || options.interactive || options.backup != Backup::None;
        // As in GNU `cp`, a special file or an unfollowed symbolic link replaces an existing entry by a rename.
        let gives_way =
            kind(self.source) != FileType::RegularFile && !options.follows(entry.named_by_caller());
        let may_go = may_go || (gives_way && !options.attributes_only);
        let is_created =
            options.becomes != Becomes::Copy || (options.attributes_only && !self.as_content);
        if is_created && !may_go && !options.remove_destination {
            let hard = options.becomes == Becomes::HardLink;
            let call = if hard { "linkat" } else { "symlinkat" };
            return Err(CopyFailure::Sink(call, Errno::EXIST, 0));
        }
        if self.as_content {
            may_be_replaced(self.run, self.here, there)?;
        }
        // This check comes first, because the rename would fail only after all bytes were written.
        if there.is_taken_away() && entry.directory.is_append_only() {
            return Err(CopyFailure::Sink("renameat2", Errno::PERM, 0));
        }
        Ok(())
    }
}

/// Returns `true` if another user may have created the existing entry to make this process write into it.
fn is_trap(run: &CopyRun<'_>, place: NameAt<'_>, there: &Stat) -> Attempt<bool> {
    let is_placed =
        there.st_uid != run.me.uid && matches!(kind(there), FileType::RegularFile | FileType::Fifo);
    if !is_placed {
        return Ok(false);
    }
    is_trap_at(place.dir, place.name).map_err(at_sink("newfstatat"))
}

/// Checks that the user may write the existing file. A rename needs no such permission, but without this check every
/// write-protected file could be replaced.
pub(crate) fn may_be_replaced(
    run: &CopyRun<'_>,
    here: NameAt<'_>,
    there: &Existing,
) -> Attempt<()> {
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
    run: &CopyRun<'_>,
    entry: &CopyEntry<'_>,
    source: &Stat,
    there: &Stat,
    fs: impl FnOnce() -> Result<StatFs, Errno>,
) -> Option<Skip> {
    let options = run.options;
    if options.compares_bytes() {
        let are_files = [source, there].map(kind) == [FileType::RegularFile; 2];
        return (are_files && source.st_size == there.st_size).then_some(Skip::Done);
    }
    let is_done = || is_done(options, source, there, fs);
    if options.sync.is_some() {
        return is_done().then_some(Skip::Done);
    }
    if options.resume && is_own(run, entry, source, there) && is_done() {
        return Some(Skip::Done);
    }
    let declined = options.interactive && !run.may_replace(&entry.destination_path());
    declined.then_some(Skip::Declined)
}

/// Returns `true` if the existing file has the owner of a copy made by this process. That is the owner at creation,
/// or the preserved owner of the source. If the file system chooses owners itself (NFS, FUSE), the owner is unknown
/// and the result is `true`.
fn is_own(run: &CopyRun<'_>, entry: &CopyEntry<'_>, source: &Stat, there: &Stat) -> bool {
    let keeps_owner = run.options.preserve.owner;
    let owner = entry.directory.births.owner;
    let is_as_kept = keeps_owner && there.st_uid == source.st_uid;
    owner.is_none_or(|(uid, _)| there.st_uid == uid) || is_as_kept
}

/// Returns `true` if size and times indicate that an earlier run finished this file. Times are set last, so equal times
/// mean that all bytes were written; [`WriteEvidence`](crate::evidence::WriteEvidence) decides whether they are still
/// intact. If times are not preserved, the file must be newer than the last change of the source.
pub(crate) fn is_done(
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
        Followed::Trap => Err(CopyFailure::Refused(Refusal::Trap)),
    }
}
