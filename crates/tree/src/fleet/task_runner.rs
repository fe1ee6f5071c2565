//! Performs tasks. Every step can be repeated, or done by two workers concurrently. A whole file gets its name when it
//! is complete. A range of a large file is written to a fixed offset of one partial file. If a source fails or changed,
//! the task counts as done, and the finisher handles the file. A destination error concerns this machine only, and
//! another worker takes the task.

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
};
use thalweg_core::{Side, atomic_file::unlink};
use thalweg_sys::{Errno, io};

use super::{
    descent::Descent,
    plan::{FleetTask, PlanEntry, SourceStamp},
};
use crate::{
    Fsync,
    copy::{
        attributes::times,
        contents::{job::ContentsJob, large::move_piece},
        copy_entry::{CopyEntry, SourceDirectory},
        descriptors::retry_for_descriptors,
        directory::Directory,
        entry::file::copy_file_entry,
        report::TreeReport,
        shared::CopyShared,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    fs::cached::DirectoryCache,
    identity::{kind, size},
    names::os,
    paths::DirectoryPaths,
    read,
};

/// The source, the tree, and the directory of partial files.
#[derive(Clone, Copy)]
pub(crate) struct FleetPaths<'g> {
    pub source: &'g OwnedFd,
    pub tree: &'g OwnedFd,
    pub parts: &'g OwnedFd,
    /// The ID of the plan. Partial files of other plans are ignored.
    pub plan: u64,
    /// Paths for messages.
    pub source_path: &'g Path,
    pub tree_path: &'g Path,
    pub kept: &'g Arc<DirectoryCache>,
}

/// A thread that performs tasks.
pub(crate) struct TaskRunner<'m> {
    grounds: FleetPaths<'m>,
    pub worker: CopyWorker<'m>,
    source: Descent,
    tree: Descent,
    // The open directory of the last file.
    here: Option<(Arc<[u8]>, SourceDirectory, Arc<Directory>)>,
}

impl FleetPaths<'_> {
    /// Returns a descent of the source.
    pub fn down_source(&self) -> Result<Descent, Errno> {
        Descent::new(again(self.source)?, self.kept, false)
    }

    /// Returns a descent of the tree. `makes`: create missing directories.
    pub fn down_tree(&self, makes: bool) -> Result<Descent, Errno> {
        Descent::new(again(self.tree)?, self.kept, makes)
    }

    /// Returns the name of the partial file of a large file.
    pub fn part(&self, file: u64) -> CString {
        CString::new(format!("{:x}-{file:x}", self.plan)).unwrap_or_default()
    }

    /// Removes the partial file of a large file.
    pub fn forget_part(&self, file: u64) -> Result<(), Errno> {
        unlink(self.parts.as_fd(), &self.part(file))
    }

    /// Returns the path of a file, in the source or in the tree.
    pub fn path_of(root: &Path, entry: &PlanEntry) -> PathBuf {
        root.join(OsStr::from_bytes(&entry.folder)).join(os(&entry.name))
    }
}

fn again(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    fd.try_clone().map_err(|_| Errno::MFILE)
}

impl<'m> TaskRunner<'m> {
    pub fn new(grounds: FleetPaths<'m>, shared: &'m CopyShared<'m>) -> Result<Self, Errno> {
        let worker = CopyWorker::new(shared);
        let (source, tree) = (grounds.down_source()?, grounds.down_tree(true)?);
        Ok(Self { grounds, worker, source, tree, here: None })
    }

    /// Performs a task. Returns an error if it cannot be done on this machine.
    pub fn perform(&mut self, task: &FleetTask) -> Result<(), (CopyFailure, PathBuf)> {
        let tree = self.grounds.tree_path;
        let of = |entry: &PlanEntry| FleetPaths::path_of(tree, entry);
        match task {
            FleetTask::Files(files) => {
                for entry in files {
                    self.patiently(|runner| runner.file(entry)).map_err(|f| (f, of(entry)))?;
                }
                Ok(())
            }
            FleetTask::Stretch { file, entry, range } => self
                .patiently(|runner| runner.stretch(*file, entry, range))
                .map_err(|failure| (failure, of(entry))),
        }
    }

    /// Returns the tally of this thread.
    pub fn end(mut self) -> TreeReport {
        self.worker.flush_progress();
        self.worker.tally
    }

    fn patiently(&mut self, act: impl Fn(&mut Self) -> Attempt<()>) -> Attempt<()> {
        let attempt = |runner: &mut Self| {
            runner.worker.run.go_on()?;
            act(runner)
        };
        match retry_for_descriptors(self, attempt, |runner| runner.grounds.kept.close_idle()) {
            Err(failure) if is_for_the_finisher(&failure) => Ok(()),
            answer => answer,
        }
    }

    /// Copies a whole file, unless an earlier attempt already did.
    fn file(&mut self, entry: &PlanEntry) -> Attempt<()> {
        let is_here = self.here.as_ref().is_some_and(|(path, ..)| *path == entry.folder);
        if !is_here {
            self.here = None;
            self.here = Some(self.enter(&entry.folder)?);
        }
        let Some((_, from, directory)) = self.here.clone() else { return Ok(()) };
        let (name, source) = (&*entry.name, &*entry.name);
        let found = CopyEntry { directory: &directory, from: &from, source, name };
        let stat = found.stat(false)?;
        if kind(&stat) != FileType::RegularFile || SourceStamp::of(&stat) != entry.seen {
            return Ok(());
        }
        copy_file_entry(&mut self.worker, &found)?;
        self.worker.flush_progress_when_due();
        Ok(())
    }

    /// Opens a directory on both sides.
    fn enter(&mut self, path: &Arc<[u8]>) -> Attempt<(Arc<[u8]>, SourceDirectory, Arc<Directory>)> {
        let from = SourceDirectory::Listed(Arc::clone(
            self.source.folder(path).map_err(at_source("openat"))?,
        ));
        let folder = self.tree.folder(path).map_err(at_sink("openat"))?;
        let fd = again(&*folder.open().map_err(at_sink("openat"))?).map_err(at_sink("fcntl"))?;
        let below = |root: &Path| {
            let path = root.join(OsStr::from_bytes(path));
            CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
        };
        let (source, tree) = (below(self.grounds.source_path), below(self.grounds.tree_path));
        let directory = Directory::base(self.worker.run, DirectoryPaths::root(source, tree), fd)?;
        Ok((Arc::clone(path), from, directory))
    }

    /// Copies a range of a large file.
    fn stretch(
        &mut self,
        file: u64,
        entry: &PlanEntry,
        range: &std::ops::Range<u64>,
    ) -> Attempt<()> {
        let folder = self.source.folder(&entry.folder).map_err(at_source("openat"))?;
        let folder = folder.open().map_err(at_source("openat"))?;
        let source = read::open(folder.as_fd(), &entry.name, false).map_err(at_source("openat"))?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        if kind(&stat) != FileType::RegularFile || SourceStamp::of(&stat) != entry.seen {
            return Ok(());
        }
        let run = self.worker.run;
        run.events.current(&FleetPaths::path_of(self.grounds.source_path, entry));
        let part = self.open_part(file, entry).map_err(at_sink("openat"))?;
        // The partial file has its full length from the start. Otherwise a mechanism that allocates space could
        // truncate ranges that other workers wrote. The completed ranges are therefore known only from the journals,
        // which are valid for this boot or with `--fsync`.
        if size(&fstat(&part).map_err(at_sink("fstat"))?) < entry.seen.size {
            io::ftruncate(&part, entry.seen.size).map_err(at_sink("ftruncate"))?;
        }
        let job = ContentsJob {
            source: &source,
            stat: &stat,
            sink: &part,
            adopted: false,
            takes_holes: true,
        };
        move_piece(&mut self.worker, &job, range.clone())?;
        // A file that has its final name in the tree counts as complete if its times equal those of the source.
        futimens(&part, &times(&stat)).map_err(at_sink("utimensat"))?;
        // Network file systems report write errors at close(2). Other machines see the bytes only after close(2).
        io::flush(&part).map_err(at_sink("close"))?;
        if run.options.fsync == Fsync::Always {
            io::sync_data(&part).map_err(at_sink("fdatasync"))?;
        }
        self.worker.flush_progress_when_due();
        Ok(())
    }
}

impl TaskRunner<'_> {
    /// Opens or creates the partial file of a large file.
    /// A finisher may already have renamed the partial file into the tree. This happens if a power failure lost the
    /// journal line of one of its tasks, or if a slow worker starts a completed task. A new partial file would lack the
    /// ranges of the other tasks, so the range is written into the renamed file.
    fn open_part(&mut self, file: u64, entry: &PlanEntry) -> Result<OwnedFd, Errno> {
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
            // The renamed file has the mode of the source, which may deny write access to the owner. The mode may be
            // changed, because no other user can enter the directory.
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

/// Returns `true` if a failure concerns the source, or would occur on every machine. The finisher then takes over.
fn is_for_the_finisher(failure: &CopyFailure) -> bool {
    // Another machine may still reach the file server of the source, so another worker takes the task.
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
        CopyFailure::Source(_, errno) => !is_lost(*errno),
        CopyFailure::RefusedSource(_)
        | CopyFailure::Refused(_)
        | CopyFailure::Deferred
        | CopyFailure::LeftDiffering
        | CopyFailure::IntoItself(..) => true,
        CopyFailure::Moved(error) => error.side == Side::Source && !is_lost(error.errno),
        CopyFailure::Sink(..) | CopyFailure::Differ | CopyFailure::Cancelled => false,
    }
}
