//! Files that appear under their name only when they are complete.
//!
//! Until it is published, an [`AtomicFile`] has no name (`O_TMPFILE`), or it is a locked partial file under a reserved
//! name ([`name`]). After a process was killed, every command recognizes its partial file by this name. A file that was
//! not published is removed when the value is dropped. A [`Destination`] is an output that a user named: an atomic
//! file, or a device or stream that is written directly.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};
use thalweg_sys::{Errno, io};

use crate::{
    cadence::{ATTEMPTS, Deadline, RETRY_PAUSE},
    failed::Failed,
};

mod destination;
mod durable;
pub mod followed;
pub mod lock;
pub mod name;
pub mod ownership;

pub use destination::{Destination, DestinationError, Until, open_in_place, write_file};
pub use durable::{Fsync, sync_directory};
use lock::{Id, Leftover, is_ours, leftover};
use name::{JOURNAL, PART, beside, short, unique};
use ownership::{LeftAlone, distrust_name, remove_own};

/// A failed system call on a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Failed { what: "the destination", call, errno: *errno, moved: 0 })]
pub struct CallFailed {
    pub call: &'static str,
    pub errno: Errno,
}

/// Returns a function that adds the name of the system call to an errno.
pub fn failed(call: &'static str) -> impl Fn(Errno) -> CallFailed {
    move |errno| CallFailed { call, errno }
}

/// Handling of an unfinished file that a dead process left under the wanted name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leftovers {
    /// `true` to resume the unfinished file, `false` to remove it.
    pub resume: bool,
    /// The source file. It is neither resumed nor removed, even if it has the name of a partial file.
    pub spare: Id,
}

/// An open file that is published under its final name when it is complete.
#[derive(Debug)]
pub struct AtomicFile<D: AsFd, N: AsRef<CStr>> {
    pub fd: OwnedFd,
    /// `true` if an earlier run left the file and this run resumes it.
    pub adopted: bool,
    /// A leftover under the usual partial name that this run did not use, because another user may have created it.
    pub left_alone: Option<LeftAlone>,
    dir: D,
    name: N,
    /// The temporary name; `None` if the file has no name yet (`O_TMPFILE`).
    part: Option<PartialName>,
    settled: bool,
}

#[derive(Debug)]
struct PartialName {
    name: CString,
    /// `true` for the usual name, under which a later run finds the file. If a living process uses the usual name, the
    /// file has a unique name instead.
    is_usual: bool,
}

/// The mode of a partial file. It keeps other users from reading or changing the file before owner and mode are final.
/// By this mode, a later run also distinguishes the file from one that another user created ([`ownership`]).
const PART_MODE: u32 = 0o600;
// After a process was killed, the kernel may close the files of its io_uring later, and releases their locks only then.
// Without this wait, a run that resumes would find the partial file locked and start a new one.
const LOCK_RELEASE: Duration = Duration::from_secs(1);

impl<D: AsFd, N: AsRef<CStr>> AtomicFile<D, N> {
    /// Creates a file to be published as `name` in `dir`. If the file system supports `O_TMPFILE`, the file has no name
    /// until it is published. Otherwise it is a partial file ([`Self::is_part`]) of mode 0600, whatever `mode` is.
    pub fn create(dir: D, name: N, mode: u32) -> Result<Self, CallFailed> {
        match open_nameless(dir.as_fd(), OFlags::RDWR, mode)? {
            Some(fd) => Ok(Self::new(fd, dir, name, None)),
            None => Self::part(dir, name, Leftovers::default()),
        }
    }

    /// Creates a file without a name; `None` if the file system does not support `O_TMPFILE`.
    pub fn nameless(
        dir: D,
        name: N,
        access: OFlags,
        mode: u32,
    ) -> Result<Option<Self>, CallFailed> {
        let opened = open_nameless(dir.as_fd(), access, mode)?;
        Ok(opened.map(|fd| Self::new(fd, dir, name, None)))
    }

    /// Creates or resumes a partial file of mode 0600. The file stays locked while it is open, so that no other run
    /// takes it for a leftover.
    pub fn part(dir: D, name: N, leftovers: Leftovers) -> Result<Self, CallFailed> {
        let found = open_part(dir.as_fd(), name.as_ref(), leftovers)?;
        let mut file = Self::new(found.fd, dir, name, Some(found.part));
        (file.adopted, file.left_alone) = (found.adopted, found.left_alone);
        Ok(file)
    }

    /// Creates a file of mode 0600 under a unique name, which no later run resumes. Use it in a directory into which
    /// other machines write files of the same names, because their locks may not be visible here.
    pub fn apart(dir: D, name: N) -> Result<Self, CallFailed> {
        for _ in 0..ATTEMPTS {
            let part = PartialName { name: unique(name.as_ref()), is_usual: false };
            match create_new(dir.as_fd(), &part.name, OFlags::RDWR, PART_MODE) {
                Ok(fd) => return Ok(Self::new(fd, dir, name, Some(part))),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(CallFailed { call: "openat", errno }),
            }
        }
        Err(CallFailed { call: "openat", errno: Errno::EXIST })
    }

    fn new(fd: OwnedFd, dir: D, name: N, part: Option<PartialName>) -> Self {
        Self { fd, adopted: false, left_alone: None, dir, name, part, settled: false }
    }

    /// Returns `true` if the file has a temporary name. Its mode is then 0600 until the caller changes it.
    pub fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// Returns the directory of the file.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Returns the final name of the file in its directory.
    pub fn name(&self) -> &CStr {
        self.name.as_ref()
    }

    /// Returns the name of this file's journal; `None` if the file cannot have one.
    pub fn journal(&self) -> Option<CString> {
        // The journal always has the usual name, so only the file with the usual partial name can have one.
        let is_usual = self.part.as_ref().is_some_and(|part| part.is_usual);
        is_usual.then(|| beside(self.name.as_ref(), JOURNAL))
    }

    /// Gives the file its final name. With `keep`, fails with EEXIST instead of replacing an existing file.
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

    /// Returns `true` if a file of the final name exists, which publishing would replace.
    pub fn replaces(&self) -> bool {
        statat(self.dir.as_fd(), self.name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Keeps the unfinished file for a later run, and returns its name. Returns `None` if no later run would find the
    /// file; it is then removed.
    pub fn leave(&mut self) -> Option<&CStr> {
        let part = self.part.as_ref().filter(|part| part.is_usual)?;
        self.settled = true;
        Some(&part.name)
    }
}

/// An unfinished file, detached from its directory and final name. It stays locked, and is not removed when this value
/// is dropped.
#[derive(Debug)]
pub struct Parked {
    fd: OwnedFd,
    part: Option<PartialName>,
}

impl Parked {
    /// Restores the file. `dir` and `name` must be those that the file had before.
    pub fn unpark<D: AsFd, N: AsRef<CStr>>(self, dir: D, name: N) -> AtomicFile<D, N> {
        AtomicFile::new(self.fd, dir, name, self.part)
    }
}

impl<D: AsFd, N: AsRef<CStr>> AtomicFile<D, N> {
    /// Detaches the file from this value, which must not be used afterwards. `None` if the descriptor cannot be
    /// duplicated.
    pub fn park(&mut self) -> Option<Parked> {
        // The duplicate shares the lock (flock).
        let fd = self.fd.try_clone().ok()?;
        self.settled = true;
        Some(Parked { fd, part: self.part.take() })
    }
}

impl<D: AsFd, N: AsRef<CStr>> Drop for AtomicFile<D, N> {
    fn drop(&mut self) {
        if let Some(part) = self.part.as_ref().filter(|_| !self.settled) {
            // Other processes take only a partial file that is not locked, and never a unique name of this process.
            // The name therefore still belongs to this file. An error cannot be reported from drop.
            let _ = unlink(self.dir.as_fd(), &part.name);
        }
    }
}

/// Creates a new file of this name; EEXIST if the name exists.
pub fn create_new(
    dir: BorrowedFd<'_>,
    name: &CStr,
    access: OFlags,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(mode))
}

/// Renames an entry. With `keep`, fails with EEXIST if the new name exists.
pub fn rename(dir: BorrowedFd<'_>, from: &CStr, to: &CStr, keep: bool) -> Result<(), Errno> {
    if keep { io::rename_new(dir, from, dir, to) } else { io::rename(dir, from, dir, to, false) }
}

/// Removes a name. Succeeds if it does not exist.
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
        // Kernels before 3.11 do not know O_TMPFILE. They see O_DIRECTORY only, and return EISDIR.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(CallFailed { call: "openat", errno }),
    }
}

struct OpenPart {
    fd: OwnedFd,
    part: PartialName,
    adopted: bool,
    left_alone: Option<LeftAlone>,
}

/// Removes the partial file of `target`, and its journal, if the process that wrote them is dead. Keeps the file
/// `spare`, which may be the source.
pub fn remove_leftover(dir: BorrowedFd<'_>, target: &CStr, spare: Id) -> Result<(), CallFailed> {
    let part = PartialName { name: beside(target, PART), is_usual: true };
    match leftover(dir, &part.name)? {
        // The lock is held until the name is removed. A process that has just created this file then cannot lock it,
        // and does not write to it.
        Leftover::Free(locked) if !is(&locked, spare)? => remove_part(dir, target, &part),
        _ => Ok(()),
    }
}

/// Removes a partial file that the caller has locked, and its journal.
fn remove_part(dir: BorrowedFd<'_>, target: &CStr, part: &PartialName) -> Result<(), CallFailed> {
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
    let usual = || PartialName { name: beside(target, PART), is_usual: true };
    let another = || PartialName { name: unique(target), is_usual: false };
    // If another user may have written the journal, the usual partial file must not be resumed.
    let journal = beside(target, JOURNAL);
    let mut left_alone = distrust_name(dir, &journal, FileType::RegularFile)
        .map(|why| LeftAlone { name: journal, why });
    let mut part = if left_alone.is_none() { usual() } else { another() };
    let release = Deadline::after(if leftovers.resume { LOCK_RELEASE } else { Duration::ZERO });
    let mut attempts = 0..ATTEMPTS;
    while attempts.next().is_some() {
        match create_new(dir, &part.name, OFlags::RDWR, PART_MODE) {
            Ok(fd) => {
                if is_ours(&fd, dir, &part.name)? {
                    return Ok(OpenPart { fd, part, adopted: false, left_alone });
                }
                part = another();
            }
            Err(Errno::EXIST) => match leftover(dir, &part.name)? {
                Leftover::Gone => {}
                Leftover::Alive if part.is_usual && !release.passed() => {
                    thread::sleep(RETRY_PAUSE);
                    attempts = 0..ATTEMPTS;
                }
                Leftover::Alive => part = another(),
                Leftover::Foreign(why) => {
                    let name = std::mem::replace(&mut part, another()).name;
                    left_alone.get_or_insert(LeftAlone { name, why });
                }
                Leftover::Free(fd) if is(&fd, leftovers.spare)? => part = another(),
                // Only a partial file under the usual name has a journal, so only that file can be resumed.
                Leftover::Free(fd) if leftovers.resume && part.is_usual => {
                    // The file has its final mode already if its process was killed just before the rename. Errors are
                    // ignored, because a file system without modes refuses fchmod.
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
        // Occupies every name that the next counter values can produce.
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
