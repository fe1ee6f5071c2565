//! A destination directory while it is filled, and the steps that complete it after its last entry.

use rustix::fs::{
    AtFlags, FileType, Stat, Statx, StatxAttributes, StatxFlags, fstat, statat, statx,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};
use thalweg_core::atomic_file::{name::OWN_JOURNAL, sync_directory, unlink};
use thalweg_sys::{Errno, host::may_fail_at_close, io};

use crate::{
    AttributeDifferences, Fsync,
    copy::{
        attributes::{Births, WantedAttributes, apply_attributes, remove_other_xattrs},
        name_at::{NameAt, remove_replaced},
        run::{Concurrency, CopyRun},
        staged_dir::{StagedDir, note_synced, remove_leftovers},
        whole_sync::WholeSync,
    },
    error::{Attempt, CopyFailure, at_sink},
    evidence::{self, WriteEvidence},
    fs::{
        cached::{CachedDirectory, ReopenAddress},
        list::DIRECTORY,
    },
    holder::Holder,
    identity::{Id, kind},
    names::os,
    paths::DirectoryPaths,
    xattrs::EntryXattrs,
};

/// An open destination directory.
pub(crate) struct Directory {
    pub paths: Arc<DirectoryPaths<Directory>>,
    /// `true` if no entry of the directory is visible under its final path yet.
    pub is_staged: bool,
    /// `true` if the directory contains only entries that this copy created. Names in it are then created without a
    /// check.
    pub is_fresh: bool,
    /// `true` if this run created the directory, or continues one that an earlier run created.
    pub is_new: bool,
    /// Attributes that the kernel gives to new files in this directory.
    pub births: Births,
    /// Evidence for the files that an earlier run left in the directory: it shows whether they are intact.
    pub evidence: WriteEvidence,
    /// `true` if `close` may report the loss of bytes that were written before.
    pub may_fail_at_close: bool,
    /// Device number of the source that the caller named. With `one_file_system` the walk stays on this device.
    pub device: u64,
    /// `true` if one `syncfs` at the end brings everything in it to stable storage.
    pub is_synced_whole: bool,
    /// Identity of the directory; all zero in a dry run if the directory does not exist.
    pub own: Id,
    /// The differences of an existing directory from its source, in a sync. `kind`: the directory replaces an entry of
    /// another type.
    pub differs: AttributeDifferences,
    /// `true` if the directory is append-only (`chattr +a`). Determined on first use.
    append_only: OnceLock<bool>,
    // Identity of the source directory.
    id: Id,
    parent: Option<Arc<Directory>>,
    // `None` in a dry run, if the directory would be new.
    folder: Option<Arc<CachedDirectory>>,
    stage: Option<StagedDir>,
    closing: Option<Closing>,
    pending: AtomicUsize,
}

/// The attributes to apply when a directory is complete.
pub(crate) struct Closing {
    pub xattrs: EntryXattrs,
    pub stat: Stat,
    pub wanted: WantedAttributes,
}

/// A destination directory that was created or found, as input for [`Directory::below`].
pub(crate) struct Entered {
    pub paths: Arc<DirectoryPaths<Directory>>,
    /// `None` in a dry run, if the directory would be new.
    pub fd: Option<OwnedFd>,
    pub stage: Option<StagedDir>,
    pub is_new: bool,
    pub own: Id,
    pub births: Births,
    pub may_fail_at_close: bool,
    /// Identity of the source directory.
    pub source: Id,
    pub device: u64,
    pub closing: Option<Closing>,
    pub differs: AttributeDifferences,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Directory {
    /// Returns the existing directory that receives the caller's sources.
    pub fn base(
        run: &CopyRun<'_>,
        paths: Arc<DirectoryPaths<Directory>>,
        fd: OwnedFd,
    ) -> Attempt<Arc<Self>> {
        let stat = fstat(&fd).map_err(at_sink("fstat"))?;
        let births = Births::of(run, fd.as_fd(), &stat);
        let may_fail_at_close = may_fail_at_close(&fd).unwrap_or(true);
        let entered = Entered {
            paths,
            fd: Some(fd),
            stage: None,
            is_new: false,
            own: Id::of(&stat),
            births,
            may_fail_at_close,
            source: Id::default(),
            device: 0,
            closing: None,
            differs: AttributeDifferences::default(),
        };
        Ok(Self::create(run, None, entered))
    }

    /// Adds a directory below `parent`, for which it counts as one piece of pending work. The new directory itself
    /// starts with one piece of pending work, which the caller completes after it has listed the entries.
    pub fn below(run: &CopyRun<'_>, parent: &Arc<Self>, entered: Entered) -> Arc<Self> {
        parent.expect_one_more();
        Self::create(run, Some(parent), entered)
    }

    fn create(run: &CopyRun<'_>, parent: Option<&Arc<Self>>, entered: Entered) -> Arc<Self> {
        let Entered { paths, fd, stage, is_new, own, births, may_fail_at_close, .. } = entered;
        let folder = fd.map(|fd| {
            let above = parent.and_then(|parent| parent.folder.as_ref());
            let address = ReopenAddress { above, name: paths.name(), flags: DIRECTORY };
            // The descriptor of a staging directory holds its lock, so the cache must not close it.
            let kept = run.kept.as_ref().filter(|_| stage.is_none() && parent.is_some());
            CachedDirectory::new(fd, own, &address, kept)
        });
        let adopted = stage.as_ref().is_some_and(|stage| stage.adopted);
        let inherited = parent.map_or(WriteEvidence::THIS_BOOT, |parent| parent.evidence);
        let evidence = stage.as_ref().map_or(inherited, |stage| stage.evidence);
        Arc::new_cyclic(|weak| {
            let _ = paths.here.set(weak.clone());
            Self {
                paths,
                is_staged: stage.is_some() || parent.is_some_and(|parent| parent.is_staged),
                is_new,
                // In a fresh parent, this copy created the directory, even if `is_new` is `false`. The destination
                // may treat two source names as equal (case folding).
                is_fresh: (is_new || parent.is_some_and(|parent| parent.is_fresh)) && !adopted,
                evidence,
                births,
                may_fail_at_close,
                device: entered.device,
                is_synced_whole: run.whole.as_ref().is_some_and(|whole| whole.covers(own)),
                own,
                differs: entered.differs,
                append_only: OnceLock::new(),
                id: entered.source,
                parent: parent.cloned(),
                folder,
                stage,
                closing: entered.closing,
                pending: AtomicUsize::new(1),
            }
        })
    }

    /// Returns `true` if the directory is append-only: no name in it can be removed or replaced. A directory with
    /// `is_fresh` counts as not append-only.
    pub fn is_append_only(&self) -> bool {
        let ask = || {
            let told = self
                .open()
                .ok()
                .flatten()
                .map(|dir| statx(dir.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::empty()));
            let is_set = |told: Statx| told.stx_attributes.contains(StatxAttributes::APPEND);
            told.is_some_and(|told| told.is_ok_and(is_set))
        };
        !self.is_fresh && *self.append_only.get_or_init(ask)
    }

    /// Returns the open directory; `None` only in a dry run.
    pub fn open(&self) -> Attempt<Option<Arc<OwnedFd>>> {
        let opened = self.folder.as_ref().map(|folder| folder.open());
        opened.transpose().map_err(at_sink("openat"))
    }

    /// Syncs the nearest staging directory that contains this directory, and records the sync in its journal. After a
    /// reboot, a resumed copy then need not read these files again.
    pub fn checkpoint(&self, run: &CopyRun<'_>) {
        let mut above = Some(self);
        while let Some(directory) = above.filter(|directory| directory.stage.is_none()) {
            above = directory.parent.as_deref();
        }
        let whole = run.whole.as_ref().filter(|_| self.is_synced_whole);
        let stage = above.and_then(|directory| directory.folder.as_ref());
        let (Some(whole), Some(stage)) = (whole, stage) else { return };
        // Files that are still being written are covered by the next checkpoint.
        let (seconds, nanoseconds) = evidence::now();
        let before = (seconds - 1, nanoseconds);
        // A failure is ignored here, because publishing the directory reports it again.
        if let (Ok(()), Ok(stage)) = (whole.sync(), stage.open()) {
            note_synced(stage.as_fd(), before);
        }
    }

    /// Returns the topmost destination directory above this one: the base directory. With `is_below_base`, returns the
    /// directory below the base directory.
    pub fn top(self: &Arc<Self>, is_below_base: bool) -> &Arc<Self> {
        let mut top = self;
        while let Some(above) = &top.parent
            && !(is_below_base && above.parent.is_none())
        {
            top = above;
        }
        top
    }

    /// Returns `true` if this source directory is an ancestor of the current one. Entering it would start a cycle.
    pub fn is_below(&self, id: Id) -> bool {
        let mut above = Some(self);
        while let Some(directory) = above {
            if directory.id == id {
                return true;
            }
            above = directory.parent.as_deref();
        }
        false
    }

    /// Adds one piece of pending work to this directory.
    pub fn expect_one_more(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Completes one piece of pending work of this directory. The last piece closes the directory, which may complete
    /// its parent in turn. The function is a loop, not a recursion, because trees can be deep.
    pub fn done(run: &CopyRun<'_>, directory: Arc<Self>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            // AcqRel: the thread that closes the directory must see everything that other threads put into it.
            if directory.pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            directory.close(run);
            let parent = directory.parent.clone();
            next = parent;
        }
    }

    fn close(&self, run: &CopyRun<'_>) {
        let Some(folder) = &self.folder else { return };
        let path = || self.paths.destination_path();
        let failed = |failure: CopyFailure| failure.at(|| self.paths.source_path(), path);
        // An earlier run or a fleet created this directory, so it may contain partial files of a killed process.
        let is_hidden = self.is_staged || run.concurrency == Concurrency::Stragglers;
        let leftovers = is_hidden && !self.is_fresh && !run.has_left_parts();
        if self.stage.is_none() && self.closing.is_none() && !leftovers {
            return;
        }
        let above = self.parent.as_ref().filter(|_| self.stage.is_some());
        let above = above.map_or(Ok(None), |above| above.open());
        let opened = folder.open().map_err(at_sink("openat"));
        let (fd, above) = match opened.and_then(|fd| Ok((fd, above?))) {
            Ok(opened) => opened,
            Err(failure) => return run.failed(failed(failure)),
        };
        let stage = self.stage.as_ref().zip(above.as_ref());
        let stage =
            stage.map(|(stage, dir)| (stage, NameAt { dir: dir.as_fd(), name: self.paths.name() }));
        if let Some((stage, name_at)) = stage.filter(|_| run.is_halting()) {
            match stage.leave(name_at, &fd) {
                Ok(true) => run.left_unfinished(path().with_file_name(os(&stage.name))),
                Ok(false) => {}
                Err(failure) => run.incomplete(failed(failure)),
            }
            return;
        }
        // The journal is removed before the times of the directory are set, because its removal changes them.
        if stage.is_some()
            && let Err(errno) = unlink(fd.as_fd(), OWN_JOURNAL)
        {
            run.incomplete(failed(CopyFailure::Sink("unlinkat", errno, 0)));
        }
        if leftovers && let Err(failure) = remove_leftovers(fd.as_fd()) {
            run.incomplete(failed(failure));
        }
        if let Some(Closing { xattrs, stat, wanted }) = &self.closing {
            let holder = Holder::Fd(fd.as_fd());
            let dressed = apply_attributes(run, holder, &path, xattrs, stat, wanted);
            if let Err(failure) = dressed {
                run.incomplete(failed(failure));
            }
            if (self.differs.acl || self.differs.xattrs)
                && let Err(failure) = remove_other_xattrs(run, fd.as_fd(), xattrs)
            {
                run.incomplete(failed(failure));
            }
            if run.options.fsync == Fsync::Always
                && !self.is_synced_whole
                && let Err(errno) = io::sync(fd.as_fd())
            {
                run.failed(failed(CopyFailure::Sink("fsync", errno, 0)));
            }
        }
        if let Some((stage, name_at)) = stage {
            self.publish(run, stage, &fd, name_at);
        }
    }

    /// Removes the entry that this directory replaces, unless that entry is a directory.
    fn remove_replaced(&self, run: &CopyRun<'_>, name_at: NameAt<'_>) -> Attempt<()> {
        let there = statat(name_at.dir, name_at.name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| kind(&there) == FileType::Directory) {
            return Ok(());
        }
        let has_entries = run.options.sync.is_some_and(|rules| rules.has_entries);
        let kept = run.options.kept.as_deref();
        remove_replaced(kept, name_at, || self.paths.path_inside(has_entries))
    }

    /// Renames a complete staging directory to its final name. With `--fsync` its contents are synced first, so that
    /// after a power failure no name is visible without its contents.
    fn publish(&self, run: &CopyRun<'_>, stage: &StagedDir, fd: &OwnedFd, name_at: NameAt<'_>) {
        let path = || self.paths.destination_path();
        let failed = |failure: CopyFailure| failure.at(|| self.paths.source_path(), path);
        let is_synced = self.is_synced_whole && run.options.fsync == Fsync::Always;
        let whole = run.whole.as_ref().filter(|_| is_synced);
        if let Some(Err(error)) = whole.map(WholeSync::sync) {
            // `syncfs` does not report which files lost bytes. The staging directory is removed, because a later run
            // would take these files for complete.
            if let Err(failure) = stage.discard(name_at, fd) {
                run.incomplete(failed(failure));
            }
            return run.failed(failed(error.into()));
        }
        if self.differs.kind
            && let Err(failure) = self.remove_replaced(run, name_at)
        {
            run.left_unfinished(path().with_file_name(os(&stage.name)));
            return run.failed(failed(failure));
        }
        if let Err(failure) = stage.publish(name_at) {
            // If another process has created the final name, no later run would use this staging directory, so it is
            // removed.
            if !matches!(failure, CopyFailure::Sink(_, Errno::EXIST | Errno::NOTEMPTY, _)) {
                run.left_unfinished(path().with_file_name(os(&stage.name)));
            } else if let Err(failure) = stage.discard(name_at, fd) {
                run.incomplete(failed(failure));
            }
            run.failed(failed(failure));
        } else if run.options.fsync == Fsync::Always
            && let Err(error) = sync_directory(name_at.dir, fd.as_fd())
        {
            run.failed(failed(error.into()));
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}
