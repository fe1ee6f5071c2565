//! Files that appear when they are whole.
//!
//! Until it is published, an [`AtomicFile`] has no name at all (`O_TMPFILE`), or is locked under the
//! name of an unfinished file ([`name`]), by which every command knows it again after a kill. What is
//! not published goes when it is dropped. A [`Destination`] is what a person named: such a file, or
//! something that is written as it stands.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};
use thalweg_sys::{Errno, io};

use crate::failed::Failed;

mod destination;
mod durable;
pub mod lock;
pub mod name;
pub mod ownership;

pub use destination::{Destination, DestinationError, Until, open_in_place, write_file};
pub use durable::{Fsync, sync_directory};
use lock::{Id, Leftover, is_ours, leftover};
use name::{JOURNAL, PART, beside, short, unique};
use ownership::{LeftAlone, distrust_name, remove_own};

/// A call on a destination that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Failed { what: "the destination", call, errno: *errno, moved: 0 })]
pub struct CallFailed {
    pub call: &'static str,
    pub errno: Errno,
}

/// Names the call of an errno.
pub fn failed(call: &'static str) -> impl Fn(Errno) -> CallFailed {
    move |errno| CallFailed { call, errno }
}

/// What becomes of an unfinished file that a dead process left under the wanted name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leftovers {
    /// It is gone on with; otherwise it is removed.
    pub resume: bool,
    /// Neither is done to this file: the source, if it has such a name.
    pub spare: Id,
}

/// An open file that gets its name when it is whole.
#[derive(Debug)]
pub struct AtomicFile<D: AsFd, N: AsRef<CStr>> {
    pub fd: OwnedFd,
    /// An earlier run left it, and this one goes on with it.
    pub adopted: bool,
    /// A leftover of the usual name that was not used, as another user may have made it.
    pub left_alone: Option<LeftAlone>,
    dir: D,
    name: N,
    /// `None`: it has no name yet.
    part: Option<Part>,
    settled: bool,
}

#[derive(Debug)]
struct Part {
    name: CString,
    /// The name by which a later run finds it; another one where a living process has that.
    is_usual: bool,
}

/// The mode of a partial file: nobody else reads or changes it before owner and mode are final, and
/// a later run can tell it from a file of another user ([`ownership`]).
const PART_MODE: u32 = 0o600;
// Enough for any sane number of copies racing for one name.
const TRIES: usize = 100;
// The kernel closes the files of a killed process's io_uring some time after that process is gone, and with them goes
// the lock: without this wait a resume would begin anew beside the part that it was started for.
const WAITS: usize = 50;
const WAIT: Duration = Duration::from_millis(20);

impl<D: AsFd, N: AsRef<CStr>> AtomicFile<D, N> {
    /// A file that will be `name` in `dir`: without a name until then where the file system has such
    /// files. Otherwise it is a part, whose mode is 0600 whatever `mode` says ([`Self::is_part`]).
    pub fn create(dir: D, name: N, mode: u32) -> Result<Self, CallFailed> {
        match open_nameless(dir.as_fd(), OFlags::RDWR, mode)? {
            Some(fd) => Ok(Self::new(fd, dir, name, None)),
            None => Self::part(dir, name, Leftovers::default()),
        }
    }

    /// A file without a name; `None` where the file system has no such thing.
    pub fn nameless(
        dir: D,
        name: N,
        access: OFlags,
        mode: u32,
    ) -> Result<Option<Self>, CallFailed> {
        let opened = open_nameless(dir.as_fd(), access, mode)?;
        Ok(opened.map(|fd| Self::new(fd, dir, name, None)))
    }

    /// A file of mode 0600 under the name of an unfinished one. It is locked for as long as it is
    /// open, so that no other run takes it for a leftover.
    pub fn part(dir: D, name: N, leftovers: Leftovers) -> Result<Self, CallFailed> {
        let found = open_part(dir.as_fd(), name.as_ref(), leftovers)?;
        let mut file = Self::new(found.fd, dir, name, Some(found.part));
        (file.adopted, file.left_alone) = (found.adopted, found.left_alone);
        Ok(file)
    }

    /// A file of mode 0600 under a name that nobody else uses, for a folder into which other machines write files
    /// of the same names: their locks may not be seen here. No later run goes on with it.
    pub fn apart(dir: D, name: N) -> Result<Self, CallFailed> {
        for _ in 0..TRIES {
            let part = Part { name: unique(name.as_ref()), is_usual: false };
            match create_new(dir.as_fd(), &part.name, OFlags::RDWR, PART_MODE) {
                Ok(fd) => return Ok(Self::new(fd, dir, name, Some(part))),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(CallFailed { call: "openat", errno }),
            }
        }
        Err(CallFailed { call: "openat", errno: Errno::EXIST })
    }

    fn new(fd: OwnedFd, dir: D, name: N, part: Option<Part>) -> Self {
        Self { fd, adopted: false, left_alone: None, dir, name, part, settled: false }
    }

    /// Whether it has a temporary name: then its mode is 0600 until the caller changes it.
    pub fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The folder that it will be in.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The name that it will have there.
    pub fn name(&self) -> &CStr {
        self.name.as_ref()
    }

    /// The name of this file's journal, if it can have one.
    pub fn journal(&self) -> Option<CString> {
        // Beside the usual part there is another run's journal, if any.
        let is_usual = self.part.as_ref().is_some_and(|part| part.is_usual);
        is_usual.then(|| beside(self.name.as_ref(), JOURNAL))
    }

    /// Gives the file its name. `keep`: fail with EEXIST rather than replace what has it.
    pub fn publish(&mut self, keep: bool) -> Result<(), CallFailed> {
        let (dir, name) = (self.dir.as_fd(), self.name.as_ref());
        match &self.part {
            None => match io::link_tmpfile(&self.fd, dir, name) {
                Err(Errno::EXIST) if !keep => {
                    let temporary = unique(name);
                    io::link_tmpfile(&self.fd, dir, &*temporary).map_err(failed("linkat"))?;
                    rename(dir, &temporary, name, false)
                        .inspect_err(|_| {
                            let _ = unlink(dir, &temporary);
                        })
                        .map_err(failed("renameat2"))?;
                }
                answer => answer.map_err(failed("linkat"))?,
            },
            Some(part) => rename(dir, &part.name, name, keep).map_err(failed("renameat2"))?,
        }
        self.settled = true;
        Ok(())
    }

    /// Returns `true` if another file has the name now, which this one would replace.
    pub fn replaces(&self) -> bool {
        statat(self.dir.as_fd(), self.name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Leaves the unfinished file for a later run, under the name it returns; `None` if no later run
    /// would find it: then it goes.
    pub fn leave(&mut self) -> Option<&CStr> {
        let part = self.part.as_ref().filter(|part| part.is_usual)?;
        self.settled = true;
        Some(&part.name)
    }
}

/// A file that is set aside, without its folder and its name. It keeps its lock, and is not removed when it is dropped.
#[derive(Debug)]
pub struct Parked {
    fd: OwnedFd,
    part: Option<Part>,
}

impl Parked {
    /// The file again, that will be `name` in `dir`: those it had before.
    pub fn unpark<D: AsFd, N: AsRef<CStr>>(self, dir: D, name: N) -> AtomicFile<D, N> {
        AtomicFile::new(self.fd, dir, name, self.part)
    }
}

impl<D: AsFd, N: AsRef<CStr>> AtomicFile<D, N> {
    /// Sets the file aside, which is not to be used here any more. `None` if there is no descriptor for that.
    pub fn park(&mut self) -> Option<Parked> {
        // The duplicate has the lock too.
        let fd = self.fd.try_clone().ok()?;
        self.settled = true;
        Some(Parked { fd, part: self.part.take() })
    }
}

impl<D: AsFd, N: AsRef<CStr>> Drop for AtomicFile<D, N> {
    fn drop(&mut self) {
        if let Some(part) = self.part.as_ref().filter(|_| !self.settled) {
            // The lock is still held, so the name is still ours. An error has no reader any more.
            let _ = unlink(self.dir.as_fd(), &part.name);
        }
    }
}

/// A new file of this name.
pub fn create_new(
    dir: BorrowedFd<'_>,
    name: &CStr,
    access: OFlags,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(mode))
}

/// A rename; `keep`: to a name that must be free.
pub fn rename(dir: BorrowedFd<'_>, from: &CStr, to: &CStr, keep: bool) -> Result<(), Errno> {
    if keep { io::rename_new(dir, from, dir, to) } else { io::rename(dir, from, dir, to, false) }
}

/// Removes a name; it may be gone already.
pub fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

fn open_nameless(
    dir: BorrowedFd<'_>,
    access: OFlags,
    mode: u32,
) -> Result<Option<OwnedFd>, CallFailed> {
    let flags = access | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(dir, c".", flags, Mode::from_raw_mode(mode)) {
        Ok(fd) => Ok(Some(fd)),
        // Old kernels take O_TMPFILE for O_DIRECTORY.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(CallFailed { call: "openat", errno }),
    }
}

struct OpenPart {
    fd: OwnedFd,
    part: Part,
    adopted: bool,
    left_alone: Option<LeftAlone>,
}

/// Removes the part, with its journal, that a dead process left of `target`, for a caller who needs none. `spare`
/// stays: it may be the source.
pub fn remove_leftover(dir: BorrowedFd<'_>, target: &CStr, spare: Id) -> Result<(), CallFailed> {
    let part = Part { name: beside(target, PART), is_usual: true };
    match leftover(dir, &part.name)? {
        // Locked until the name is gone: who made it a moment ago must not begin in it.
        Leftover::Free(locked) if !is(&locked, spare)? => remove_part(dir, target, &part),
        _ => Ok(()),
    }
}

/// Removes a part that is locked.
fn remove_part(dir: BorrowedFd<'_>, target: &CStr, part: &Part) -> Result<(), CallFailed> {
    if part.is_usual {
        let _ = remove_own(dir, &beside(target, JOURNAL));
    }
    unlink(dir, &part.name).map_err(failed("unlinkat"))
}

fn open_part(
    dir: BorrowedFd<'_>,
    target: &CStr,
    leftovers: Leftovers,
) -> Result<OpenPart, CallFailed> {
    let usual = || Part { name: beside(target, PART), is_usual: true };
    let another = || Part { name: unique(target), is_usual: false };
    // A part would be worth nothing beside a journal that another user wrote.
    let journal = beside(target, JOURNAL);
    let mut left_alone = distrust_name(dir, &journal, FileType::RegularFile)
        .map(|why| LeftAlone { name: journal, why });
    let mut part = if left_alone.is_none() { usual() } else { another() };
    let mut waits = if leftovers.resume { WAITS } else { 0 };
    for _ in 0..TRIES {
        match create_new(dir, &part.name, OFlags::RDWR, PART_MODE) {
            Ok(fd) => {
                if is_ours(&fd, dir, &part.name)? {
                    return Ok(OpenPart { fd, part, adopted: false, left_alone });
                }
                part = another();
            }
            Err(Errno::EXIST) => match leftover(dir, &part.name)? {
                Leftover::Gone => {}
                Leftover::Alive if part.is_usual && waits > 0 => {
                    waits -= 1;
                    thread::sleep(WAIT);
                }
                Leftover::Alive => part = another(),
                Leftover::Foreign(why) => {
                    let name = std::mem::replace(&mut part, another()).name;
                    left_alone.get_or_insert(LeftAlone { name, why });
                }
                Leftover::Free(fd) if is(&fd, leftovers.spare)? => part = another(),
                // Under another name it has no journal: it is begun anew.
                Leftover::Free(fd) if leftovers.resume && part.is_usual => {
                    // Killed just before it got its name, it has its final mode. A file system without modes refuses.
                    let _ = fchmod(&fd, Mode::from_raw_mode(PART_MODE));
                    return Ok(OpenPart { fd, part, adopted: true, left_alone });
                }
                Leftover::Free(_locked) => remove_part(dir, target, &part)?,
            },
            Err(Errno::NAMETOOLONG) if part.name != short(target, PART) => {
                part.name = short(target, PART);
            }
            Err(errno) => return Err(CallFailed { call: "openat", errno }),
        }
    }
    Err(CallFailed { call: "openat", errno: Errno::EXIST })
}

fn is(fd: &OwnedFd, id: Id) -> Result<bool, CallFailed> {
    Ok(Id::of(&fstat(fd).map_err(failed("fstat"))?) == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_another_process_of_our_number_left_under_another_name_is_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join(".n.thalweg-part");
        let alive = fs::File::create(&part).unwrap();
        alive.lock().unwrap();
        // Whichever number comes next, there is a leftover of that name.
        let name = unique(c"n").into_string().unwrap();
        let (stem, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        for next in number..number + 1000 {
            fs::write(folder.path().join(format!("{stem}-{next}")), "left").unwrap();
        }
        let dir = fs::File::open(folder.path()).unwrap();
        let leftovers = Leftovers { resume: true, ..Leftovers::default() };
        let file = AtomicFile::part(&dir, c"n", leftovers).unwrap();
        assert!(!file.adopted && file.journal().is_none());
        assert_eq!(fstat(&file.fd).unwrap().st_size, 0);
    }

    #[test]
    fn files_of_one_name_that_are_made_apart_never_meet() {
        let folder = tempfile::tempdir().unwrap();
        let dir = fs::File::open(folder.path()).unwrap();
        fs::write(folder.path().join(".n.thalweg-part"), "left").unwrap();
        let mut one = AtomicFile::apart(&dir, c"n").unwrap();
        let mut other = AtomicFile::apart(&dir, c"n").unwrap();
        io::write(&one.fd, b"one").unwrap();
        io::write(&other.fd, b"other").unwrap();
        one.publish(false).unwrap();
        other.publish(false).unwrap();
        drop((one, other));
        assert_eq!(fs::read(folder.path().join("n")).unwrap(), b"other");
        assert_eq!(fs::read(folder.path().join(".n.thalweg-part")).unwrap(), b"left");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_was_published_by_another_before_it_was_locked_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".n.thalweg-part");
        let dir = fs::File::open(folder.path()).unwrap();
        let is_ours = |made: &OwnedFd| is_ours(made, dir.as_fd(), c".n.thalweg-part").unwrap();
        let made = OwnedFd::from(fs::File::create_new(&path).unwrap());
        let leftovers = Leftovers { resume: true, ..Leftovers::default() };
        let mut rival = AtomicFile::part(&dir, c"n", leftovers).unwrap();
        assert!(rival.adopted && !is_ours(&made));
        rival.publish(false).unwrap();
        drop(rival);
        assert!(!is_ours(&made));
    }
}
