//! A destination directory while things are put into it, and what happens when the last one is in.

use rustix::fs::{Mode, Stat, fchmod, fstat};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use thalweg_core::atomic_file::name::OWN_JOURNAL;
use thalweg_sys::{Errno, host::may_tell_at_close, io};

use crate::{
    Error, Fsync, Refusal,
    copy::{
        attributes::{self, Body, Wanted},
        dest::{
            mkdir::{Births, make, wanted},
            publish::{Spot, unlink},
            staged_dir::{StagedDir, remove_leftovers},
        },
        leaf::Leaf,
        run::Run,
    },
    error::{Attempt, Failure, at_sink},
    folder::{Address, Folder},
    identity::Id,
    listing::DIRECTORY,
    names::os,
    paths::Paths,
    xattrs::{Holder, Taken},
};

/// An open destination directory.
pub(crate) struct Directory {
    pub paths: Arc<Paths<Directory>>,
    /// Nothing in it can be seen under its final path yet.
    pub is_staged: bool,
    /// Nothing is in it but what this run has put there: no need to look before making a name.
    pub is_fresh: bool,
    /// What a file born in it gets by itself.
    pub births: Births,
    /// Closing a file made in it may tell of bytes that were not kept.
    pub may_tell_at_close: bool,
    /// The file system of the source that the caller named, where the walk may have to stay.
    pub device: u64,
    /// The directory itself; all zero in a dry run, where it is not there.
    pub own: Id,
    // Of the source directory.
    id: Id,
    parent: Option<Arc<Directory>>,
    // None in a dry run, where it would be new.
    folder: Option<Arc<Folder>>,
    stage: Option<StagedDir>,
    closing: Option<Closing>,
    pending: AtomicUsize,
}

/// What is left to do when a directory is complete.
struct Closing {
    xattrs: Taken,
    stat: Stat,
    wanted: Wanted,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Directory {
    /// The directory that the caller's sources go to. It is there already.
    pub fn base(run: &Run<'_>, paths: Arc<Paths<Directory>>, fd: OwnedFd) -> Attempt<Arc<Self>> {
        let stat = fstat(&fd).map_err(at_sink("fstat"))?;
        let births = Births::of(run, fd.as_fd(), &stat);
        let may_tell_at_close = may_tell_at_close(&fd).unwrap_or(true);
        let address = Address { above: None, name: paths.name(), flags: DIRECTORY };
        let folder = Folder::new(fd, Id::of(&stat), &address, None);
        Ok(Arc::new_cyclic(|weak| {
            let _ = paths.here.set(weak.clone());
            Self {
                paths,
                is_staged: false,
                is_fresh: false,
                births,
                may_tell_at_close,
                device: 0,
                own: Id::of(&stat),
                id: Id::default(),
                parent: None,
                folder: Some(folder),
                stage: None,
                closing: None,
                pending: AtomicUsize::new(1),
            }
        }))
    }

    /// Makes or merges into the directory for `leaf`, whose source is open. It is a piece of pending
    /// work of its parent, and has one itself: that of the caller, who goes through its entries.
    pub fn enter(
        run: &Run<'_>,
        leaf: &Leaf<'_>,
        source: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Attempt<Arc<Self>> {
        let parent = leaf.directory;
        // Taken now, so that the source need not stay open; given last, as a default list would rule
        // over what is made inside.
        let xattrs = Taken::from(&Holder::Fd(source), run.options.preserve).unwrap_or_else(|e| {
            run.incomplete(error_at(leaf, e));
            Taken::default()
        });
        let made = make(run, leaf, (source, stat))?;
        let (mut births, mut may_tell) = (parent.births, parent.may_tell_at_close);
        let mut closing = None;
        let mut own_id = Id::default();
        if let Some(fd) = &made.fd {
            let mut own = fstat(fd).map_err(at_sink("fstat"))?;
            let born = own.st_mode & 0o7777;
            if made.is_new && born & 0o700 != 0o700 {
                // A default list of the directory above may have left us out.
                let open = Mode::from_raw_mode(born | 0o700);
                fchmod(fd, open).map_err(at_sink("fchmod"))?;
                own.st_mode |= 0o700;
            }
            own_id = Id::of(&own);
            births =
                if made.is_new { births.inside(&own) } else { Births::of(run, fd.as_fd(), &own) };
            let born = made.is_new.then_some(born);
            if !made.is_new {
                may_tell = may_tell_at_close(fd).unwrap_or(true);
            }
            let wanted = wanted(run, stat, (&own, born), births);
            if wanted.is_some() || run.options.fsync == Fsync::Dir {
                closing = Some(Closing { xattrs, stat: *stat, wanted: wanted.unwrap_or_default() });
            }
            if leaf.named_by_caller() {
                run.grown
                    .write()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push(Id::of(&own));
            }
        }
        if own_id == Id::of(stat) {
            return Err(Failure::Refused(Refusal::SameFile(leaf.source_path())));
        }
        parent.expect_one_more();
        let paths = leaf.paths();
        let folder = made.fd.map(|fd| {
            let address =
                Address { above: parent.folder.as_ref(), name: leaf.name, flags: DIRECTORY };
            // A stage is locked by its descriptor.
            let kept = if made.stage.is_some() { None } else { run.kept.as_ref() };
            Folder::new(fd, own_id, &address, kept)
        });
        let adopted = made.stage.as_ref().is_some_and(|stage| stage.adopted);
        Ok(Arc::new_cyclic(|weak| {
            let _ = paths.here.set(weak.clone());
            Self {
                paths,
                is_staged: parent.is_staged || made.stage.is_some(),
                // Two names of the source may be one here: then both are put in by this run.
                is_fresh: (made.is_new || parent.is_fresh) && !adopted,
                births,
                may_tell_at_close: may_tell,
                device: if leaf.named_by_caller() { stat.st_dev } else { parent.device },
                own: own_id,
                id: Id::of(stat),
                parent: Some(Arc::clone(parent)),
                folder,
                stage: made.stage,
                closing,
                pending: AtomicUsize::new(1),
            }
        }))
    }

    /// The open directory; `None` only in a dry run.
    pub fn open(&self) -> Attempt<Option<Arc<OwnedFd>>> {
        let opened = self.folder.as_ref().map(|folder| folder.open());
        opened.transpose().map_err(at_sink("openat"))
    }

    /// Whether this source directory is one of those being copied around it: a cycle.
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

    /// Announces a piece of work in this directory.
    pub fn expect_one_more(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// A piece of work in this directory is done. The last one closes the directory, which may in
    /// turn be the last piece of work of the one above, and so on: a loop, as trees can be deep.
    pub fn done(run: &Run<'_>, directory: Arc<Self>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            // AcqRel: whoever closes it has seen all that was put in.
            if directory.pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            directory.close(run);
            let parent = directory.parent.clone();
            next = parent;
        }
    }

    fn close(&self, run: &Run<'_>) {
        let Some(folder) = &self.folder else { return };
        let path = || self.paths.destination_path();
        let failed = |failure: Failure| failure.at(|| self.paths.source_path(), path);
        // In a stage but not fresh: an earlier run had made it.
        let leftovers = self.is_staged && !self.is_fresh && !run.has_left_parts();
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
            stage.map(|(stage, dir)| (stage, Spot { dir: dir.as_fd(), name: self.paths.name() }));
        if let Some((stage, spot)) = stage.filter(|_| run.is_halting()) {
            match stage.leave(spot, &fd) {
                Ok(true) => run.left_unfinished(path().with_file_name(os(&stage.name))),
                Ok(false) => {}
                Err(failure) => run.incomplete(failed(failure)),
            }
            return;
        }
        // Before the times of the directory are set.
        if stage.is_some()
            && let Err(errno) = unlink(fd.as_fd(), OWN_JOURNAL)
        {
            run.incomplete(failed(Failure::Sink("unlinkat", errno, 0)));
        }
        if leftovers && let Err(failure) = remove_leftovers(fd.as_fd()) {
            run.incomplete(failed(failure));
        }
        if let Some(Closing { xattrs, stat, wanted }) = &self.closing {
            let body = Body { fd: fd.as_fd(), path: &path };
            let dressed = attributes::apply_attributes(run, body, xattrs, stat, wanted);
            if let Err(failure) = dressed {
                run.incomplete(failed(failure));
            }
            if run.options.fsync == Fsync::Dir
                && let Err(errno) = io::sync(fd.as_fd())
            {
                run.failed(failed(Failure::Sink("fsync", errno, 0)));
            }
        }
        let Some((stage, spot)) = stage else { return };
        if let Err(failure) = stage.publish(spot) {
            // Somebody else was faster: this one will never get its name, nor be found by a later run.
            if !matches!(failure, Failure::Sink(_, Errno::EXIST | Errno::NOTEMPTY, _)) {
                run.left_unfinished(path().with_file_name(os(&stage.name)));
            } else if let Err(failure) = stage.discard(spot, &fd) {
                run.incomplete(failed(failure));
            }
            run.failed(failed(failure));
        } else if run.options.fsync == Fsync::Dir
            && let Err(errno) = io::sync(spot.dir)
        {
            run.failed(failed(Failure::Sink("fsync", errno, 0)));
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

/// The error of a directory, with its paths.
pub(crate) fn error_at(leaf: &Leaf<'_>, failure: Failure) -> Error {
    failure.at(|| leaf.source_path(), || leaf.destination_path())
}
