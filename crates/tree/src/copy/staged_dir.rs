//! A staging directory: a new directory that is filled under a temporary name and renamed when it is complete.

use rustix::fs::{
    AtFlags, FileType, Mode, Stat, fchmod, fchown, fstat, mkdirat, openat, statat, unlinkat,
};
use rustix::process::geteuid;
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_core::{
    atomic_file::{
        lock::{Leftover, claim, is_ours},
        name::{OWN_JOURNAL, PART, beside, is_reserved, short, unique},
        ownership::{LeftAlone, distrust},
        unlink,
    },
    cadence::ATTEMPTS,
};
use thalweg_sys::{Errno, io};

use crate::{
    copy::name_at::NameAt,
    error::{Attempt, CopyFailure, at_sink, at_source},
    evidence::WriteEvidence,
    fs::{
        beneath::open_by_force,
        list::{DIRECTORY, ancestors, each_entry, listing_buffer},
        remove::remove_contents,
    },
    identity::Id,
    journal::{Identity, Journal, JournalKeeper, JournalSource, Remote, earlier},
    times::Time,
};

/// A directory under its temporary name. It is locked while it is open.
///
/// From its creation until it is complete, the directory belongs to our user and has mode 0700. A leftover is adopted
/// or removed only if `fstat` shows this owner and no write permission for other users. Therefore no other user can
/// have created anything in it, and the entries inside need no such check.
pub(crate) struct StagedDir {
    /// Its temporary name.
    pub name: CString,
    /// `true` if an earlier run left it.
    pub adopted: bool,
    /// The leftover with the usual name, if it was not used because another user may have created it.
    pub left_alone: Option<LeftAlone>,
    /// Evidence for the files that the earlier run left in the directory: it shows whether they are intact.
    pub evidence: WriteEvidence,
    /// `true` if the directory has the name under which a later run finds it.
    is_usual: bool,
}

/// The source of a staging directory.
#[derive(Clone, Copy)]
pub(crate) enum StageSource<'a> {
    /// An open local directory.
    Folder(BorrowedFd<'a>, &'a Stat),
    /// A directory on a server.
    Remote(&'a Remote),
}

impl StagedDir {
    /// Creates a staging directory for `name_at`, or adopts a leftover with a matching source.
    pub fn make(
        name_at: NameAt<'_>,
        resume: bool,
        origin: StageSource<'_>,
    ) -> Attempt<(OwnedFd, Self)> {
        let mut name = beside(name_at.name, PART);
        let mut is_usual = true;
        let mut left_alone = None;
        for _ in 0..ATTEMPTS {
            match mkdirat(name_at.dir, &name, Mode::RWXU) {
                Ok(()) => {
                    if let Some(fd) = claim_new(NameAt { dir: name_at.dir, name: &name })? {
                        journal(fd.as_fd(), origin).write();
                        let evidence = WriteEvidence::THIS_BOOT;
                        let made = Self { name, adopted: false, left_alone, evidence, is_usual };
                        return Ok((fd, made));
                    }
                    (name, is_usual) = (unique(name_at.name), false);
                }
                Err(Errno::EXIST) => match claim(name_at.dir, &name, DIRECTORY)? {
                    Leftover::Gone => {}
                    Leftover::Alive => (name, is_usual) = (unique(name_at.name), false),
                    Leftover::Foreign(why) => {
                        let name_left = std::mem::replace(&mut name, unique(name_at.name));
                        left_alone.get_or_insert(LeftAlone { name: name_left, why });
                        is_usual = false;
                    }
                    Leftover::Free(fd) if holds(&fd, origin)? => {
                        (name, is_usual) = (unique(name_at.name), false);
                    }
                    Leftover::Free(fd) if resume && is_usual && !is_of_another(&fd, origin) => {
                        // A run that was killed just before the rename has already set the final mode.
                        let _ = fchmod(&fd, Mode::RWXU);
                        let evidence = take_over(fd.as_fd(), origin);
                        let found = Self { name, adopted: true, left_alone, evidence, is_usual };
                        return Ok((fd, found));
                    }
                    // The leftover stays locked until its name is removed. Otherwise the process that has just created
                    // the directory could start to use it.
                    Leftover::Free(locked) => {
                        remove_contents(&locked)?;
                        unlinkat(name_at.dir, &name, AtFlags::REMOVEDIR)
                            .map_err(at_sink("unlinkat"))?;
                    }
                },
                Err(Errno::NAMETOOLONG) if name != short(name_at.name, PART) => {
                    name = short(name_at.name, PART);
                }
                Err(errno) => return Err(CopyFailure::Sink("mkdirat", errno, 0)),
            }
        }
        Err(CopyFailure::Sink("mkdirat", Errno::EXIST, 0))
    }

    /// Renames the directory to its final name, which must still be free.
    pub fn publish(&self, name_at: NameAt<'_>) -> Attempt<()> {
        io::rename_new(name_at.dir, &*self.name, name_at.dir, name_at.name)
            .map_err(at_sink("renameat2"))
    }

    /// Leaves the directory in place if a later run would find it, otherwise removes it. Returns `true` if it remains.
    pub fn leave(&self, name_at: NameAt<'_>, fd: &OwnedFd) -> Attempt<bool> {
        if self.is_usual { Ok(true) } else { self.discard(name_at, fd).map(|()| false) }
    }

    /// Removes the directory, open as `fd`, and all its contents.
    pub fn discard(&self, name_at: NameAt<'_>, fd: &OwnedFd) -> Attempt<()> {
        // The directory may already have its final owner and mode. Resetting both first ensures that no other user
        // can move anything in while it is emptied.
        let _ = fchown(fd, Some(geteuid()), None).and_then(|()| fchmod(fd, Mode::RWXU));
        remove_contents(fd)?;
        unlinkat(name_at.dir, &*self.name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))
    }
}

/// Opens and locks a directory that was just created. Returns `None` if another process took it for a leftover before
/// the lock. Also returns `None` if the owner of the parent directory replaced it.
fn claim_new(name_at: NameAt<'_>) -> Attempt<Option<OwnedFd>> {
    match open_by_force(name_at.dir, name_at.name) {
        Ok(fd) => {
            let stat = fstat(&fd).map_err(at_sink("fstat"))?;
            let is_own = distrust(name_at.dir, &stat, FileType::Directory).is_none();
            Ok((is_own && is_ours(&fd, name_at.dir, name_at.name)?).then_some(fd))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(CopyFailure::Sink("openat", errno, 0)),
    }
}

/// Returns the effective mode of a directory that is created in `stage` with mode `mode`. `stage` inherited the default
/// ACL of its parent, so the result also applies to the final directory.
pub(crate) fn birth_mode(stage: BorrowedFd<'_>, mode: u32) -> Attempt<u32> {
    let name = unique(c"new");
    mkdirat(stage, &name, Mode::from_raw_mode(mode)).map_err(at_sink("mkdirat"))?;
    let looked = statat(stage, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(at_sink("newfstatat"));
    unlinkat(stage, &name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))?;
    Ok(looked?.st_mode & 0o7777)
}

/// Returns the keeper of a staging directory's journal, which records the source. A staging directory without a journal
/// matches every local source.
fn journal<'a>(stage: BorrowedFd<'a>, origin: StageSource<'_>) -> JournalKeeper<BorrowedFd<'a>> {
    let source = match origin {
        StageSource::Folder(_, stat) => JournalSource::Local(Identity::of(stat)),
        StageSource::Remote(remote) => JournalSource::Remote(remote.clone()),
    };
    JournalKeeper::new(stage, OWN_JOURNAL.to_owned(), source, false)
}

/// Returns the evidence for the files in an adopted staging directory, and updates its journal to the current boot.
/// Files of earlier boots can still be recognized, by their change times.
fn take_over(stage: BorrowedFd<'_>, origin: StageSource<'_>) -> WriteEvidence {
    let mut keeper = journal(stage, origin);
    let earlier = keeper.earlier().and_then(Result::ok);
    let is_of_this_boot = earlier.as_ref().is_some_and(Journal::is_of_this_boot);
    let evidence = WriteEvidence::of_stage(earlier.as_ref());
    // `is_of_another` has already checked that the old journal names this local source. The new journal contains the
    // current boot and device number.
    if !is_of_this_boot && matches!(origin, StageSource::Folder(..)) {
        if let Some(moment) = earlier.and_then(|earlier| earlier.synced_before) {
            keeper.note_synced_before(moment);
        }
        keeper.write();
    }
    evidence
}

/// Records in the journal of a staging directory that all files last changed before this moment are on stable
/// storage.
pub(crate) fn note_synced(stage: BorrowedFd<'_>, before: Time) {
    if let Some(Ok(own)) = earlier(stage, OWN_JOURNAL) {
        let mut keeper = JournalKeeper::new(stage, OWN_JOURNAL.to_owned(), own.source, true);
        keeper.note_synced_before(before);
        keeper.write();
    }
}

/// Returns `true` if a leftover may belong to another directory: resuming it would mix the files of both. A leftover of
/// a server's directory must name this URL and be of this boot, because its contents may exist only in the page cache.
fn is_of_another(leftover: &OwnedFd, origin: StageSource<'_>) -> bool {
    let earlier = journal(leftover.as_fd(), origin).earlier().and_then(Result::ok);
    match (origin, earlier.as_ref().map(|earlier| &earlier.source)) {
        (StageSource::Folder(_, _), None) => false,
        (StageSource::Folder(_, stat), Some(JournalSource::Local(was))) => {
            let is = Id::of(stat);
            let is_of_this_boot = earlier.as_ref().is_some_and(Journal::is_of_this_boot);
            // Device numbers may change at reboot, so they are compared only within one boot.
            was.ino != is.ino || (is_of_this_boot && was.dev != is.dev)
        }
        (StageSource::Remote(is), Some(JournalSource::Remote(was))) => {
            was.url != is.url || !earlier.as_ref().is_some_and(Journal::is_of_this_boot)
        }
        (StageSource::Folder(..), Some(JournalSource::Remote(_))) | (StageSource::Remote(_), _) => {
            true
        }
    }
}

/// Returns `true` if the leftover is the source of this copy or an ancestor of it. The user may be copying a leftover
/// to its final name, so the leftover must not be removed.
fn holds(leftover: &OwnedFd, origin: StageSource<'_>) -> Attempt<bool> {
    let StageSource::Folder(source, _) = origin else { return Ok(false) };
    let leftover = Id::of(&fstat(leftover).map_err(at_sink("fstat"))?);
    let above = ancestors(source).map_err(at_source("openat"))?;
    Ok(above.contains(&leftover))
}

/// Removes the partial files that a killed process left in a directory that is not visible yet.
pub(crate) fn remove_leftovers(dir: BorrowedFd<'_>) -> Attempt<()> {
    let fd = openat(dir, c".", DIRECTORY, Mode::empty()).map_err(at_sink("openat"))?;
    let mut removed = Ok(());
    let listed = each_entry(fd, &mut listing_buffer(), |entry| {
        if entry.file_type() != FileType::Directory && is_reserved(entry.file_name()) {
            removed = unlink(dir, entry.file_name()).map_err(at_sink("unlinkat"));
        }
        removed.is_ok()
    });
    removed.and(listed.map_err(at_sink("getdents64")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, sync::Barrier, thread};

    #[test]
    fn a_leftover_stage_is_emptied_and_a_living_one_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let old = place.path().join(".new.thalweg-part");
        fs::create_dir_all(old.join("a/b/c")).unwrap();
        fs::write(old.join("a/b/file"), "x").unwrap();
        let dir = fs::File::open(place.path()).unwrap();
        let name_at = NameAt { dir: dir.as_fd(), name: c"new" };
        let stat = fstat(&dir).unwrap();
        let source = StageSource::Folder(dir.as_fd(), &stat);
        let (held, first) = StagedDir::make(name_at, false, source).unwrap();
        assert!(!first.adopted);
        assert_eq!(fs::read_dir(&old).unwrap().count(), 1, "the journal");
        let (_, second) = StagedDir::make(name_at, true, source).unwrap();
        assert_ne!(second.name, first.name);
        drop(held);
        let (_held, third) = StagedDir::make(name_at, true, source).unwrap();
        assert!(third.adopted && third.name == first.name);
        third.publish(name_at).unwrap();
        assert!(second.publish(name_at).is_err());
        // A later run looks for the usual name only.
        let (_alive, fourth) = StagedDir::make(name_at, true, source).unwrap();
        let (fd, fifth) = StagedDir::make(name_at, true, source).unwrap();
        assert!(!fifth.leave(name_at, &fd).unwrap());
        assert!(fourth.leave(name_at, &fd).unwrap());
        let left = |stage: &StagedDir| place.path().join(stage.name.to_str().unwrap()).is_dir();
        assert!(left(&fourth) && !left(&fifth));
    }

    #[test]
    fn a_stage_that_was_published_by_another_before_it_was_locked_is_not_ours() {
        let place = tempfile::tempdir().unwrap();
        let (name, part) = (c"n", c".n.thalweg-part");
        let path = place.path().join(".n.thalweg-part");
        let dir = fs::File::open(place.path()).unwrap();
        let name_at = NameAt { dir: dir.as_fd(), name };
        fs::create_dir(&path).unwrap();
        let made = OwnedFd::from(fs::File::open(&path).unwrap());
        let stat = fstat(&dir).unwrap();
        let source = StageSource::Folder(dir.as_fd(), &stat);
        let (held, rival) = StagedDir::make(name_at, true, source).unwrap();
        assert!(rival.adopted);
        rival.publish(name_at).unwrap();
        drop(held);
        assert!(!is_ours(&made, name_at.dir, part).unwrap());
    }

    #[test]
    fn of_many_that_race_for_one_name_one_gets_it_with_what_it_put_in() {
        let place = tempfile::tempdir().unwrap();
        let dir = fs::File::open(place.path()).unwrap();
        let name_at = NameAt { dir: dir.as_fd(), name: c"new" };
        let stat = fstat(&dir).unwrap();
        let source = StageSource::Folder(dir.as_fd(), &stat);
        let build = |n: u64| {
            let (fd, stage) = StagedDir::make(name_at, false, source).unwrap();
            let mine = CString::new(n.to_string()).unwrap();
            mkdirat(&fd, &mine, Mode::RWXU).unwrap();
            match stage.publish(name_at) {
                Ok(()) => Some(n),
                Err(CopyFailure::Sink(_, Errno::EXIST, _)) => {
                    stage.discard(name_at, &fd).unwrap();
                    None
                }
                Err(failure) => panic!("{failure:?}"),
            }
        };
        for round in 0..50 {
            let start = Barrier::new(4);
            let winners: Vec<u64> = thread::scope(|scope| {
                let racer = |n| {
                    let (start, build) = (&start, &build);
                    scope.spawn(move || {
                        start.wait();
                        build(n)
                    })
                };
                let racers: Vec<_> = (0..4).map(racer).collect();
                racers.into_iter().filter_map(|racer| racer.join().unwrap()).collect()
            });
            assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
            assert!(place.path().join("new").join(winners[0].to_string()).is_dir());
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "round {round}");
            fs::remove_dir_all(place.path().join("new")).unwrap();
        }
    }

    #[test]
    fn only_our_own_leftovers_are_removed() {
        let place = tempfile::tempdir().unwrap();
        for name in [".a.thalweg-part", ".a.thalweg-journal", "a", ".b"] {
            fs::write(place.path().join(name), "x").unwrap();
        }
        let dir = fs::File::open(place.path()).unwrap();
        remove_leftovers(dir.as_fd()).unwrap();
        assert_eq!(thalweg_testing::names(place.path()), [".b", "a"]);
    }
}
