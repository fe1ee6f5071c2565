//! A new directory that is built under another name and gets its own when all is in it.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fchown, fstat, mkdirat, openat, statat, unlinkat,
};
use rustix::process::geteuid;
use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use thalweg_core::atomic_file::{
    lock::{Leftover, claim, is_ours},
    name::{OWN_JOURNAL, PART, beside, is_reserved, short, unique},
    ownership::{LeftAlone, distrust},
    unlink,
};
use thalweg_sys::{Errno, io, opened::chmod_opened};

use crate::{
    copy::name_at::NameAt,
    error::{Attempt, Failure, at_sink, at_source},
    evidence::{Evidence, Moment},
    folder::{Address, Folder, Kept},
    identity::Id,
    journal::{Identity, Journal, Keeper, Remote, Source, earlier},
    listing::{DIRECTORY, ancestors, each_entry, listing_buffer},
};

/// A directory under its temporary name, locked while it is open.
///
/// It belongs to us and has mode 0700 from the moment it is made until all of it is there, and a leftover is adopted or
/// removed only if `fstat` shows the owner and no write permission for others. So no other user has ever put anything
/// in: what lies below it needs no such look.
pub(crate) struct StagedDir {
    /// The name it has now.
    pub name: CString,
    /// It was left by an earlier run.
    pub adopted: bool,
    /// A leftover of the usual name that was not used, as another user may have made it.
    pub left_alone: Option<LeftAlone>,
    /// What vouches for the files that the earlier run left in it.
    pub evidence: Evidence,
    /// It has the name by which a later run finds it.
    is_usual: bool,
}

/// What a stage is a copy of.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// An open folder.
    Folder(BorrowedFd<'a>, &'a Stat),
    /// A folder of a server.
    Remote(&'a Remote),
}

const TRIES: usize = 100;

impl StagedDir {
    /// Creates a staging directory for the one that will be `name_at`, or takes over a leftover one of the same
    /// source.
    pub fn make(name_at: NameAt<'_>, resume: bool, origin: Origin<'_>) -> Attempt<(OwnedFd, Self)> {
        let mut name = beside(name_at.name, PART);
        let mut is_usual = true;
        let mut left_alone = None;
        for _ in 0..TRIES {
            match mkdirat(name_at.dir, &name, Mode::RWXU) {
                Ok(()) => {
                    match open_new(NameAt { dir: name_at.dir, name: &name }) {
                        Ok(fd)
                            if is_own(name_at.dir, &fd)? && is_ours(&fd, name_at.dir, &name)? =>
                        {
                            journal(fd.as_fd(), origin).write();
                            let evidence = Evidence::THIS_BOOT;
                            return Ok((
                                fd,
                                Self { name, adopted: false, left_alone, evidence, is_usual },
                            ));
                        }
                        // Another run took it for a leftover before it was locked, or the owner of the directory
                        // above put another in its place.
                        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                            (name, is_usual) = (unique(name_at.name), false);
                        }
                        Err(errno) => return Err(Failure::Sink("openat", errno, 0)),
                    }
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
                        // Killed just before it got its name, it has its final mode.
                        let _ = fchmod(&fd, Mode::RWXU);
                        let evidence = take_over(fd.as_fd(), origin);
                        return Ok((
                            fd,
                            Self { name, adopted: true, left_alone, evidence, is_usual },
                        ));
                    }
                    // Locked until the name is gone: the process that made it a moment ago must not begin in it.
                    Leftover::Free(locked) => {
                        remove_contents(reopen(&locked)?)?;
                        unlinkat(name_at.dir, &name, AtFlags::REMOVEDIR)
                            .map_err(at_sink("unlinkat"))?;
                    }
                },
                Err(Errno::NAMETOOLONG) if name != short(name_at.name, PART) => {
                    name = short(name_at.name, PART);
                }
                Err(errno) => return Err(Failure::Sink("mkdirat", errno, 0)),
            }
        }
        Err(Failure::Sink("mkdirat", Errno::EXIST, 0))
    }

    /// Gives the directory its own name, which must still be free.
    pub fn publish(&self, name_at: NameAt<'_>) -> Attempt<()> {
        io::rename_new(name_at.dir, &*self.name, name_at.dir, name_at.name)
            .map_err(at_sink("renameat2"))
    }
}

impl StagedDir {
    /// Leaves the directory for a later run if that would find it, and removes it if not; says
    /// whether it is still there.
    pub fn leave(&self, name_at: NameAt<'_>, fd: &OwnedFd) -> Attempt<bool> {
        if self.is_usual { Ok(true) } else { self.discard(name_at, fd).map(|()| false) }
    }

    /// Removes the directory, open as `fd`, and all that is in it.
    pub fn discard(&self, name_at: NameAt<'_>, fd: &OwnedFd) -> Attempt<()> {
        // It may have its final owner and mode already. While it is emptied, no other user may move anything in.
        let _ = fchown(fd, Some(geteuid()), None).and_then(|()| fchmod(fd, Mode::RWXU));
        remove_contents(reopen(fd)?)?;
        unlinkat(name_at.dir, &*self.name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))
    }
}

/// Whether no other user can have made this directory, or can put anything in.
pub(crate) fn is_own(above: BorrowedFd<'_>, fd: &OwnedFd) -> Attempt<bool> {
    let stat = fstat(fd).map_err(at_sink("fstat"))?;
    Ok(distrust(above, &stat, FileType::Directory).is_none())
}

/// Opens a directory just made, even if a default list does not let us.
pub(crate) fn open_new(name_at: NameAt<'_>) -> Result<OwnedFd, Errno> {
    open_by_force(name_at.dir, name_at.name)
}

/// Opens a directory, and gives us the rights to it if its mode does not. No link is followed, also not by the change of
/// the mode.
fn open_by_force(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match openat(dir, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let itself = openat(dir, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
            chmod_opened(&itself, 0o700)?;
            openat(&itself, c".", DIRECTORY, Mode::empty())
        }
        answer => answer,
    }
}

/// Returns the mode that a directory gets which is made in `stage` with this one: a default list above the stage has the
/// same effect in it.
pub(crate) fn birth_mode(stage: BorrowedFd<'_>, mode: u32) -> Attempt<u32> {
    let name = unique(c"new");
    mkdirat(stage, &name, Mode::from_raw_mode(mode)).map_err(at_sink("mkdirat"))?;
    let looked = statat(stage, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(at_sink("newfstatat"));
    unlinkat(stage, &name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))?;
    Ok(looked?.st_mode & 0o7777)
}

/// The journal of a stage. It says which source it is a copy of; a stage without one is any folder's.
fn journal<'a>(stage: BorrowedFd<'a>, origin: Origin<'_>) -> Keeper<BorrowedFd<'a>> {
    let source = match origin {
        Origin::Folder(_, stat) => Source::Local(Identity::of(stat)),
        Origin::Remote(remote) => Source::Remote(remote.clone()),
    };
    Keeper::new((stage, OWN_JOURNAL.to_owned()), source, false)
}

/// Returns what vouches for the files in an adopted stage, and has its journal speak of this boot from now on: files of
/// earlier boots are known by their times.
fn take_over(stage: BorrowedFd<'_>, origin: Origin<'_>) -> Evidence {
    let mut keeper = journal(stage, origin);
    let earlier = keeper.earlier().and_then(Result::ok);
    let is_of_this_boot = earlier.as_ref().is_some_and(Journal::is_of_this_boot);
    let evidence = Evidence::of_stage(earlier.as_ref());
    // Only now is the source of a local stage known to be the one of the journal.
    if !is_of_this_boot && matches!(origin, Origin::Folder(..)) {
        if let Some(moment) = earlier.and_then(|earlier| earlier.synced_before) {
            keeper.note_synced_before(moment);
        }
        keeper.write();
    }
    evidence
}

/// Has the journal of a stage say that all its files that were last changed before this moment are on stable storage.
pub(crate) fn note_synced(stage: BorrowedFd<'_>, before: Moment) {
    if let Some(Ok(own)) = earlier(stage, OWN_JOURNAL) {
        let mut keeper = Keeper::new((stage, OWN_JOURNAL.to_owned()), own.source, true);
        keeper.note_synced_before(before);
        keeper.write();
    }
}

/// Whether a leftover is known to be a copy of another directory: the files of both would be mixed. Of a
/// server's folder it must be known to be no other, and to be as the page cache had it.
fn is_of_another(leftover: &OwnedFd, origin: Origin<'_>) -> bool {
    let earlier = journal(leftover.as_fd(), origin).earlier().and_then(Result::ok);
    match (origin, earlier.as_ref().map(|earlier| &earlier.source)) {
        (Origin::Folder(_, _), None) => false,
        (Origin::Folder(_, stat), Some(Source::Local(was))) => {
            let is = Id::of(stat);
            let is_of_this_boot = earlier.as_ref().is_some_and(Journal::is_of_this_boot);
            // Devices may get other numbers when the machine starts.
            was.ino != is.ino || (is_of_this_boot && was.dev != is.dev)
        }
        (Origin::Remote(is), Some(Source::Remote(was))) => {
            was.url != is.url || !earlier.as_ref().is_some_and(Journal::is_of_this_boot)
        }
        (Origin::Folder(..), Some(Source::Remote(_))) | (Origin::Remote(_), _) => true,
    }
}

/// Whether a leftover is the source that is copied, or a directory around it: what was left is being
/// copied to its final name, and it must not be removed for that.
fn holds(leftover: &OwnedFd, origin: Origin<'_>) -> Attempt<bool> {
    let Origin::Folder(source, _) = origin else { return Ok(false) };
    let leftover = Id::of(&fstat(leftover).map_err(at_sink("fstat"))?);
    let above = ancestors(source).map_err(at_source("openat"))?;
    Ok(above.contains(&leftover))
}

/// Removes the unfinished files that a killed run left in a directory that is not visible yet.
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

/// Another descriptor of an open directory.
fn reopen(fd: &OwnedFd) -> Attempt<OwnedFd> {
    fd.try_clone().map_err(|_| Failure::Sink("fcntl", Errno::MFILE, 0))
}

/// How many directories stay open while a tree is emptied: it may be deeper than there are descriptors.
const KEPT: usize = 4;

/// Empties a directory, however deep.
pub(crate) fn remove_contents(top: OwnedFd) -> Attempt<()> {
    let kept = Kept::new(KEPT);
    let folder = |fd: OwnedFd, name: &CStr, above: Option<&Arc<Folder>>| -> Attempt<_> {
        let id = Id::of(&fstat(&fd).map_err(at_sink("fstat"))?);
        let address = Address { above, name, flags: DIRECTORY };
        // The top has no name to find it by.
        Ok(Folder::new(fd, id, &address, above.map(|_| &kept)))
    };
    // The directories from the top to where we are, each with its name in the one before.
    let mut path = vec![(folder(top, c"", None)?, CString::default())];
    let mut buffer = listing_buffer();
    while let Some((here, _)) = path.last() {
        let fd = here.open().map_err(at_sink("openat"))?;
        if let Some((below, name)) = empty_but_for_one(fd.as_fd(), &mut buffer)? {
            path.push((folder(below, &name, Some(here))?, name));
            continue;
        }
        drop(fd);
        let Some((done, name)) = path.pop() else { break };
        drop(done);
        if let Some((above, _)) = path.last() {
            let above = above.open().map_err(at_sink("openat"))?;
            unlinkat(&*above, &*name, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat"))?;
        }
    }
    Ok(())
}

/// Removes entries until a directory that is not empty comes up; opens that one.
fn empty_but_for_one(
    dir: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
) -> Attempt<Option<(OwnedFd, CString)>> {
    let fresh = openat(dir, c".", DIRECTORY, Mode::empty()).map_err(at_sink("openat"))?;
    let mut found = Ok(None);
    let listed = each_entry(fresh, buffer, |entry| {
        found = remove_entry(dir, entry.file_name());
        matches!(found, Ok(None))
    });
    let found = found?;
    listed.map(|()| found).map_err(at_sink("getdents64"))
}

/// Removes an entry, or opens it if it is a directory that is not empty.
fn remove_entry(dir: BorrowedFd<'_>, name: &CStr) -> Attempt<Option<(OwnedFd, CString)>> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(Failure::Sink("unlinkat", errno, 0)),
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let below = open_for_removal(dir, name).map_err(at_sink("openat"))?;
            Ok(Some((below, name.to_owned())))
        }
        Err(errno) => Err(Failure::Sink("unlinkat", errno, 0)),
    }
}

fn open_for_removal(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    // It may have got its final mode already, which need not let us in.
    let fd = open_by_force(dir, name)?;
    let _ = fchmod(&fd, Mode::RWXU);
    Ok(fd)
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
        let source = Origin::Folder(dir.as_fd(), &stat);
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
        let source = Origin::Folder(dir.as_fd(), &stat);
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
        let source = Origin::Folder(dir.as_fd(), &stat);
        let build = |n: u64| {
            let (fd, stage) = StagedDir::make(name_at, false, source).unwrap();
            let mine = CString::new(n.to_string()).unwrap();
            mkdirat(&fd, &mine, Mode::RWXU).unwrap();
            match stage.publish(name_at) {
                Ok(()) => Some(n),
                Err(Failure::Sink(_, Errno::EXIST, _)) => {
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
        let mut left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".b", "a"]);
    }
}
