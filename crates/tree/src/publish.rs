//! A destination file that is written, and gets its name when it is whole.
//!
//! What is not published is removed when it is dropped, unless it is to be resumed.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, unlinkat};
use std::{
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};
use thalweg_sys::{Errno, io};

use crate::{
    Refusal,
    claim::{Leftover, is_named, is_ours, leftover},
    error::{Attempt, Failure, at_sink},
    identity::{Id, kind},
    naming::{JOURNAL, PART, beside, short, unique},
};

/// Where a file goes.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    /// Its directory.
    pub dir: BorrowedFd<'a>,
    /// The name it gets.
    pub name: &'a CStr,
}

/// An open destination file.
pub(crate) struct Sink<'a> {
    pub fd: OwnedFd,
    /// An earlier run left it, and this one goes on with it.
    pub adopted: bool,
    spot: Spot<'a>,
    form: Form,
    settled: bool,
}

enum Form {
    /// It is written under its own name, which nobody can see yet, or which was asked for.
    Own,
    /// It has no name until it is linked.
    Nameless,
    /// It is written under another name; not the usual one if that was taken.
    Part { name: CString, is_usual: bool },
    /// It was there before and is written into.
    Existing,
}

// Enough for any sane crowd of copies racing for one name.
const TRIES: usize = 100;
// The kernel closes the files of a killed process's io_uring some time after that process is gone, and with them goes
// the lock: without patience a resume would begin anew beside the part that it was started for.
const WAITS: usize = 50;
const WAIT: Duration = Duration::from_millis(20);

impl<'a> Sink<'a> {
    /// A new file under its own name.
    pub fn own(spot: Spot<'a>, access: OFlags, mode: u32) -> Attempt<Self> {
        let fd = create(spot.dir, spot.name, access, mode).map_err(at_sink("openat"))?;
        Ok(Self::new(fd, spot, Form::Own))
    }

    /// A file without a name; `None` where the file system has no such thing.
    pub fn nameless(spot: Spot<'a>, access: OFlags, mode: u32) -> Attempt<Option<Self>> {
        let flags = access | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(spot.dir, c".", flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => Ok(Some(Self::new(fd, spot, Form::Nameless))),
            // Old kernels take O_TMPFILE for O_DIRECTORY.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(Failure::Sink("openat", errno, 0)),
        }
    }

    /// A file under the name of an unfinished one. It is locked for as long as it is open, so that
    /// no other run takes it for a leftover. `resume`: go on with a leftover instead of removing it;
    /// but the source itself, if it has such a name, is neither gone on with nor removed.
    pub fn part(spot: Spot<'a>, mode: u32, (resume, source): (bool, Id)) -> Attempt<Self> {
        let mut name = beside(spot.name, PART);
        let mut is_usual = true;
        let mut waits = if resume { WAITS } else { 0 };
        for _ in 0..TRIES {
            match create(spot.dir, &name, OFlags::RDWR, mode) {
                Ok(fd) => {
                    if is_ours(&fd, spot.dir, &name)? {
                        return Ok(Self::new(fd, spot, Form::Part { name, is_usual }));
                    }
                    (name, is_usual) = (unique(spot.name), false);
                }
                Err(Errno::EXIST) => match leftover(spot, &name)? {
                    Leftover::Gone => {}
                    Leftover::Alive if is_usual && waits > 0 => {
                        waits -= 1;
                        thread::sleep(WAIT);
                    }
                    Leftover::Alive => (name, is_usual) = (unique(spot.name), false),
                    Leftover::Free(fd) if is(&fd, source)? => {
                        (name, is_usual) = (unique(spot.name), false);
                    }
                    // Under another name nobody keeps a journal: it is begun anew.
                    Leftover::Free(fd) if resume && is_usual => {
                        let mut sink = Self::new(fd, spot, Form::Part { name, is_usual });
                        sink.adopted = true;
                        return Ok(sink);
                    }
                    Leftover::Free(_locked) => {
                        if is_usual {
                            ignore(unlink(spot.dir, &beside(spot.name, JOURNAL)));
                        }
                        unlink(spot.dir, &name).map_err(at_sink("unlinkat"))?;
                    }
                },
                Err(Errno::NAMETOOLONG) if name != short(spot.name, PART) => {
                    name = short(spot.name, PART);
                }
                Err(errno) => return Err(Failure::Sink("openat", errno, 0)),
            }
        }
        Err(Failure::Sink("openat", Errno::EXIST, 0))
    }

    /// A file that is there already, to be written into from its start. It is emptied only once it is
    /// known not to be the source, which may have got this name since the two were compared.
    pub fn existing(spot: Spot<'a>, access: OFlags, source: Id) -> Attempt<Self> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = openat(spot.dir, spot.name, flags, Mode::empty()).map_err(at_sink("openat"))?;
        let own = fstat(&fd).map_err(at_sink("fstat"))?;
        if Id::of(&own) == source {
            return Err(Failure::Refused(Refusal::Replaced));
        }
        // Files of /proc and /sys have no length to take away.
        if kind(&own) == FileType::RegularFile && own.st_size > 0 {
            io::ftruncate(&fd, 0).map_err(at_sink("ftruncate"))?;
        }
        Ok(Self::new(fd, spot, Form::Existing))
    }

    fn new(fd: OwnedFd, spot: Spot<'a>, form: Form) -> Self {
        Self { fd, adopted: false, spot, form, settled: false }
    }

    /// Where the journal of this file is, if it can have one.
    pub fn journal(&self) -> Option<(BorrowedFd<'a>, CString)> {
        match &self.form {
            // Beside the usual part there is another run's journal, if any.
            Form::Part { is_usual: true, .. } => {
                Some((self.spot.dir, beside(self.spot.name, JOURNAL)))
            }
            _ => None,
        }
    }

    /// Gives the file its name. `keep`: fail with EEXIST rather than replace what has it.
    pub fn publish(&mut self, keep: bool) -> Attempt<()> {
        let Spot { dir, name } = self.spot;
        match &self.form {
            Form::Own | Form::Existing => {}
            Form::Nameless => match io::link_tmpfile(&self.fd, dir, name) {
                Err(Errno::EXIST) if !keep => {
                    let temporary = unique(name);
                    io::link_tmpfile(&self.fd, dir, &*temporary).map_err(at_sink("linkat"))?;
                    rename(dir, &temporary, name, false)
                        .inspect_err(|_| ignore(unlink(dir, &temporary)))
                        .map_err(at_sink("renameat2"))?;
                }
                answer => answer.map_err(at_sink("linkat"))?,
            },
            Form::Part { name: part, .. } => {
                rename(dir, part, name, keep).map_err(at_sink("renameat2"))?;
            }
        }
        self.settled = true;
        Ok(())
    }

    /// Leaves the unfinished file for a later run, under the name it returns; `None` if no later run
    /// would find it: then it goes.
    pub fn leave(&mut self) -> Option<&CStr> {
        match &self.form {
            Form::Part { name, is_usual: true } => {
                self.settled = true;
                Some(name)
            }
            _ => None,
        }
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let name = match &self.form {
            // All could see it, and somebody may have put a file of theirs in its place.
            Form::Own if !is_named(&self.fd, self.spot.dir, self.spot.name).unwrap_or(false) => {
                return;
            }
            Form::Own => self.spot.name,
            Form::Part { name, .. } => name,
            Form::Nameless | Form::Existing => return,
        };
        // The lock is still held, so the name is still ours. Nobody is left to tell of an error.
        let _ = unlink(self.spot.dir, name);
    }
}

/// A rename; `keep`: to a name that must be free.
pub(crate) fn rename(dir: BorrowedFd<'_>, from: &CStr, to: &CStr, keep: bool) -> Result<(), Errno> {
    if keep { io::rename_new(dir, from, dir, to) } else { io::rename(dir, from, dir, to, false) }
}

pub(crate) fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

/// Lets go of an error on a way that already reports a more telling one.
pub(crate) fn ignore<T>(_: Result<T, Errno>) {}

fn is(fd: &OwnedFd, id: Id) -> Attempt<bool> {
    Ok(Id::of(&fstat(fd).map_err(at_sink("fstat"))?) == id)
}

fn create(dir: BorrowedFd<'_>, name: &CStr, access: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::fd::AsFd};

    #[test]
    fn what_another_process_of_our_number_left_under_another_name_is_not_gone_on_with() {
        let place = tempfile::tempdir().unwrap();
        let part = place.path().join(".n.thalweg-part");
        let alive = fs::File::create(&part).unwrap();
        alive.lock().unwrap();
        // Whichever number comes next, there is a leftover of that name.
        let name = unique(c"n").into_string().unwrap();
        let (stem, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        for next in number..number + 1000 {
            fs::write(place.path().join(format!("{stem}-{next}")), "left").unwrap();
        }
        let dir = fs::File::open(place.path()).unwrap();
        let spot = Spot { dir: dir.as_fd(), name: c"n" };
        let sink = Sink::part(spot, 0o600, (true, Id::default())).unwrap();
        assert!(!sink.adopted && sink.journal().is_none());
        assert_eq!(fstat(&sink.fd).unwrap().st_size, 0);
    }
}
