//! Does tasks. Whatever it does can be done again, or by two at once: a whole file gets its name when it is whole, and
//! a stretch of a large one puts the same bytes to the same place of the same part.
//!
//! What is wrong with a source, or has changed in it, is left to who finishes, and the task counts as done. What the
//! destination refuses is this machine's trouble, and the task is left to another.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, chmodat, fchmod, fstat, futimens, openat, statat,
};
use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use thalweg_core::{Side, atomic_file::unlink};
use thalweg_sys::{Errno, io};

use super::{
    descent::Descent,
    plan::{Entry, Seen, Task},
};
use crate::{
    Error, Fsync,
    copy::{
        attributes::times,
        contents::{job::Job, large::move_piece},
        copy_entry::{CopyEntry, Origin},
        directory::Directory,
        entry::file::copy_file_entry,
        report::Tally,
        shared::CopyShared,
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink, at_source},
    folder::Kept,
    identity::{kind, size},
    names::os,
    paths::Paths,
    read,
};

/// How often something is tried again for which there was no descriptor, and how soon.
const TRIES: usize = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// The two trees, and where parts of large files are.
#[derive(Clone, Copy)]
pub(crate) struct Grounds<'g> {
    pub source: &'g OwnedFd,
    pub tree: &'g OwnedFd,
    pub parts: &'g OwnedFd,
    /// Which plan: the parts of another are none.
    pub plan: u64,
    /// For people.
    pub source_path: &'g Path,
    pub tree_path: &'g Path,
    pub kept: &'g Arc<Kept>,
}

/// One thread that does tasks.
pub(crate) struct Mover<'m> {
    grounds: Grounds<'m>,
    pub worker: Worker<'m>,
    source: Descent,
    tree: Descent,
    // The folder of the last file.
    here: Option<(Arc<[u8]>, Origin, Arc<Directory>)>,
}

impl Grounds<'_> {
    /// A way down the source.
    pub fn down_source(&self) -> Result<Descent, Errno> {
        Descent::new(again(self.source)?, self.kept, false)
    }

    /// A way down the tree; `makes`: what is missing of it.
    pub fn down_tree(&self, makes: bool) -> Result<Descent, Errno> {
        Descent::new(again(self.tree)?, self.kept, makes)
    }

    /// The name of the part of a large file.
    pub fn part(&self, file: u64) -> CString {
        CString::new(format!("{:x}-{file:x}", self.plan)).unwrap_or_default()
    }

    /// Removes what was moved of a large file.
    pub fn forget_part(&self, file: u64) -> Result<(), Errno> {
        unlink(self.parts.as_fd(), &self.part(file))
    }

    /// The path of a file, in the source or in the tree.
    pub fn path_of(root: &Path, entry: &Entry) -> PathBuf {
        root.join(OsStr::from_bytes(&entry.folder)).join(os(&entry.name))
    }
}

fn again(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    fd.try_clone().map_err(|_| Errno::MFILE)
}

impl<'m> Mover<'m> {
    pub fn new(grounds: Grounds<'m>, shared: &'m CopyShared<'m>) -> Result<Self, Errno> {
        let worker = Worker::new(shared);
        let (source, tree) = (grounds.down_source()?, grounds.down_tree(true)?);
        Ok(Self { grounds, worker, source, tree, here: None })
    }

    /// Does a task, or says why it cannot be done here.
    pub fn perform(&mut self, task: &Task) -> Result<(), (Failure, PathBuf)> {
        let tree = self.grounds.tree_path;
        let of = |entry: &Entry| Grounds::path_of(tree, entry);
        match task {
            Task::Files(files) => {
                for entry in files {
                    self.patiently(|mover| mover.file(entry)).map_err(|f| (f, of(entry)))?;
                }
                Ok(())
            }
            Task::Stretch { file, entry, range } => self
                .patiently(|mover| mover.stretch(*file, entry, range))
                .map_err(|failure| (failure, of(entry))),
        }
    }

    /// What it did.
    pub fn end(mut self) -> Tally {
        self.worker.tell_now();
        self.worker.tally
    }

    fn patiently(&mut self, act: impl Fn(&mut Self) -> Attempt<()>) -> Attempt<()> {
        let mut tries = 0..TRIES;
        loop {
            self.worker.run.go_on()?;
            match act(self) {
                Err(failure) if failure.is_for_descriptors() && tries.next().is_some() => {
                    self.grounds.kept.give_up();
                    thread::sleep(BETWEEN_TRIES);
                }
                Err(failure) if is_for_the_finisher(&failure) => return Ok(()),
                answer => return answer,
            }
        }
    }

    /// Copies a whole file, unless an earlier attempt did.
    fn file(&mut self, entry: &Entry) -> Attempt<()> {
        let is_here = self.here.as_ref().is_some_and(|(path, ..)| *path == entry.folder);
        if !is_here {
            self.here = None;
            self.here = Some(self.enter(&entry.folder)?);
        }
        let Some((_, from, directory)) = self.here.clone() else { return Ok(()) };
        let stat = statat(from.open()?, &*entry.name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(at_source("newfstatat"))?;
        if kind(&stat) != FileType::RegularFile || Seen::of(&stat) != entry.seen {
            return Ok(());
        }
        let (name, source) = (&*entry.name, &*entry.name);
        let entry = CopyEntry { directory: &directory, from: &from, source, name };
        copy_file_entry(&mut self.worker, &entry)?;
        self.worker.tell();
        Ok(())
    }

    /// Opens a folder on both sides.
    fn enter(&mut self, path: &Arc<[u8]>) -> Attempt<(Arc<[u8]>, Origin, Arc<Directory>)> {
        let from =
            Origin::Listed(Arc::clone(self.source.folder(path).map_err(at_source("openat"))?));
        let folder = self.tree.folder(path).map_err(at_sink("openat"))?;
        let fd = again(&*folder.open().map_err(at_sink("openat"))?).map_err(at_sink("fcntl"))?;
        let below = |root: &Path| {
            let path = root.join(OsStr::from_bytes(path));
            CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
        };
        let (source, tree) = (below(self.grounds.source_path), below(self.grounds.tree_path));
        let directory = Directory::base(self.worker.run, Paths::root(source, tree), fd)?;
        Ok((Arc::clone(path), from, directory))
    }

    /// Moves a stretch of a large file.
    fn stretch(&mut self, file: u64, entry: &Entry, range: &std::ops::Range<u64>) -> Attempt<()> {
        let folder = self.source.folder(&entry.folder).map_err(at_source("openat"))?;
        let folder = folder.open().map_err(at_source("openat"))?;
        let source = read::open(folder.as_fd(), &entry.name, false).map_err(at_source("openat"))?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        if kind(&stat) != FileType::RegularFile || Seen::of(&stat) != entry.seen {
            return Ok(());
        }
        let run = self.worker.run;
        run.events.current(&Grounds::path_of(self.grounds.source_path, entry));
        let part = self.open_part(file, entry).map_err(at_sink("openat"))?;
        // Its whole length from the start: a mechanism that makes room would cut off what others have written behind it.
        // So its size proves nothing; the journals say what is there, for this boot or with --fsync.
        if size(&fstat(&part).map_err(at_sink("fstat"))?) < entry.seen.size {
            io::ftruncate(&part, entry.seen.size).map_err(at_sink("ftruncate"))?;
        }
        let job =
            Job { source: &source, stat: &stat, sink: &part, adopted: false, takes_holes: true };
        move_piece(&mut self.worker, &job, range.clone())?;
        // A file that has its name in the tree is known to be whole by its times.
        futimens(&part, &times(&stat)).map_err(at_sink("utimensat"))?;
        // Network disks say here what they could not keep, and others see the bytes only from now on.
        io::flush(&part).map_err(at_sink("close"))?;
        if run.options.fsync == Fsync::Always {
            io::sync_data(&part).map_err(at_sink("fdatasync"))?;
        }
        self.worker.tell();
        Ok(())
    }
}

impl Mover<'_> {
    /// Opens the file in which the tasks of a large file write their stretches, or creates it.
    ///
    /// A finisher may have renamed it into the tree before a power cut lost the journal line of one of its tasks, or before a
    /// slow worker begins a task that another one has done. That file holds the stretches of the other tasks, and a new one
    /// would have holes, so the stretch goes into it.
    fn open_part(&mut self, file: u64, entry: &Entry) -> Result<OwnedFd, Errno> {
        let name = self.grounds.part(file);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(self.grounds.parts, &*name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        let folder = self.tree.folder(&entry.folder)?.open()?;
        let placed = match statat(&*folder, &*entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            placed => Some(placed?).filter(|placed| kind(placed) == FileType::RegularFile),
        };
        let owner = Mode::RUSR | Mode::WUSR;
        let Some(placed) = placed else {
            return openat(self.grounds.parts, &*name, flags | OFlags::CREATE, owner);
        };
        match openat(&*folder, &*entry.name, flags, Mode::empty()) {
            // It has the mode of the source, which need not let its owner write. No other user can enter the directory.
            Err(Errno::ACCESS) => {
                let mode = Mode::from_raw_mode(placed.st_mode);
                chmodat(&*folder, &*entry.name, mode | owner, AtFlags::empty())?;
                let opened = openat(&*folder, &*entry.name, flags, Mode::empty())?;
                fchmod(&opened, mode)?;
                Ok(opened)
            }
            opened => opened,
        }
    }
}

/// Whether a failure is about one source, or one that any worker would meet.
fn is_for_the_finisher(failure: &Failure) -> bool {
    // Others may reach the server of the source.
    let is_lost = |errno: Errno| {
        matches!(
            errno,
            Errno::STALE
                | Errno::NOTCONN
                | Errno::TIMEDOUT
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::CONNABORTED
        )
    };
    match failure {
        Failure::Source(_, errno) => !is_lost(*errno),
        Failure::RefusedSource(_)
        | Failure::Refused(_)
        | Failure::LeftDiffering
        | Failure::IntoItself(..) => true,
        Failure::Moved(error) => error.side == Side::Source && !is_lost(error.errno),
        Failure::Sink(..) | Failure::Differ | Failure::Cancelled => false,
    }
}

/// What went wrong, with the path it is about.
pub(crate) fn error_of((failure, path): (Failure, PathBuf)) -> Error {
    failure.at(|| path.clone(), || path.clone())
}
