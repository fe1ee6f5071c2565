//! What happens to one file with contents before any byte moves.

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, fstatfs, openat, statat,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sys::Errno;

use crate::{
    Refusal, Skip,
    copy::{
        attributes::{self, Body, Wanted},
        dest::{
            conflict::{Existing, Verdict, resolve_conflict},
            mode::modes,
            way::Way,
        },
        entry::hardlink::{LeftName, Named},
        leaf::Leaf,
        links::{Met, id_of},
        spot::Spot,
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink, at_source},
    identity::{Id, kind, size},
    times,
    xattrs::{Holder, Taken},
};

/// Progress of one name of a file after one visit by a worker.
enum NameOutcome {
    /// The name was copied, linked or skipped.
    Processed,
    /// Another worker is copying the same file under another name; this name is queued again afterwards.
    Waiting,
}

impl Worker<'_> {
    /// Copies a file with contents: a regular one, or without `-r` whatever can be read.
    pub fn file(&mut self, leaf: &Leaf<'_>) -> Attempt<()> {
        if self.run.options.dry_run {
            return self.would_copy(leaf);
        }
        let source = self.open_source(leaf)?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        let is_regular = kind(&stat) == FileType::RegularFile;
        if kind(&stat) == FileType::Directory || (!is_regular && !self.run.options.reads_specials())
        {
            return Err(Failure::RefusedSource(Refusal::Replaced));
        }
        self.run.expect_not_listed_over(&stat, || leaf.source_path());
        self.take_up(leaf, size(&stat));
        let copied = self.copy_or_leave(leaf, &source, &stat);
        // A name that waits for another one to be copied comes back through the queue and is counted then.
        if !matches!(copied, Ok(NameOutcome::Waiting)) {
            self.settle(size(&stat));
        }
        copied.map(drop)
    }

    /// Copies the file, links it to an earlier copy, or leaves the existing one.
    fn copy_or_leave(
        &mut self,
        leaf: &Leaf<'_>,
        source: &OwnedFd,
        stat: &Stat,
    ) -> Attempt<NameOutcome> {
        let options = self.run.options;
        let is_regular = kind(stat) == FileType::RegularFile;
        let Some(dir) = leaf.directory.open()? else { return Ok(NameOutcome::Processed) };
        let dir = dir.as_fd();
        let mut verdict = if leaf.directory.is_fresh {
            Verdict::New
        } else {
            resolve_conflict(self.run, leaf, dir, stat)?
        };
        if let Verdict::Skip(reason, there) = verdict {
            if let Some(outcome) = self.leave(leaf, (dir, reason, &there), (source, stat))? {
                return Ok(outcome);
            }
            verdict = Verdict::Replace(there);
        }
        let verdict = match verdict {
            Verdict::Replace(there) if options.attributes_only && there.keeps_contents(options) => {
                self.give_attributes(leaf, (source, stat), &there)?;
                return Ok(NameOutcome::Processed);
            }
            verdict => verdict,
        };
        if !(options.links_names(leaf.named_by_caller(), stat.st_nlink) && is_regular) {
            self.copy_contents(leaf, source, stat, verdict)?;
            return Ok(NameOutcome::Processed);
        }
        loop {
            match self.crew.links.meet(leaf, stat) {
                Met::Waits => return Ok(NameOutcome::Waiting),
                Met::Again(name) => match self.link(leaf, (dir, stat), &name)? {
                    Named::Done => {
                        if let Verdict::Replace(there) = &verdict {
                            self.tell_removed(leaf, Some(there), stat);
                        }
                        self.list_file(leaf);
                    }
                    Named::Lost => continue,
                    Named::Refused => drop(self.copy_contents(leaf, source, stat, verdict)?),
                },
                Met::First => {
                    let copied = self.copy_contents(leaf, source, stat, verdict);
                    self.wake_for(leaf, stat, copied)?;
                }
            }
            return Ok(NameOutcome::Processed);
        }
    }

    /// What would become of a file. Nothing is opened: a FIFO would wait for its writer, and a device
    /// may do something.
    fn would_copy(&mut self, leaf: &Leaf<'_>) -> Attempt<()> {
        let follows = self.run.options.follows(leaf.named_by_caller());
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat =
            statat(leaf.from.open()?, leaf.source, flags).map_err(at_source("newfstatat"))?;
        accessat(leaf.from.open()?, leaf.source, Access::READ_OK, AtFlags::EACCESS)
            .map_err(at_source("faccessat2 R_OK"))?;
        let verdict = match leaf.directory.open()? {
            Some(dir) if !leaf.directory.is_fresh => {
                resolve_conflict(self.run, leaf, dir.as_fd(), &stat)?
            }
            _ => Verdict::New,
        };
        if let Verdict::Skip(reason, _) = verdict {
            self.skip(leaf, reason);
            self.tally.verified.not_read += u64::from(self.run.options.verify.is_some());
        } else {
            let there = if let Verdict::Replace(there) = &verdict { Some(there) } else { None };
            self.tell_removed(leaf, there, &stat);
            if let Some(room) = &self.run.room
                && !there.is_some_and(|there| there.is_special() || there.is_behind_link())
                && !matches!(verdict, Verdict::NewBehind(_))
            {
                let from = leaf.from.open()?;
                room.count(self.run.options, (from.as_fd(), &stat), there.map(|there| &there.stat));
            }
            self.count_file(leaf, None);
        }
        Ok(())
    }

    fn open_source(&self, leaf: &Leaf<'_>) -> Attempt<OwnedFd> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if !self.run.options.follows(leaf.named_by_caller()) {
            flags |= OFlags::NOFOLLOW;
        }
        if !self.run.options.reads_specials() {
            // What was listed as a file may be a FIFO by now: do not wait for its writer.
            flags |= OFlags::NONBLOCK;
        }
        openat(leaf.from.open()?, leaf.source, flags, Mode::empty()).map_err(at_source("openat"))
    }

    /// Gives an existing file the attributes of the source, and leaves its bytes alone.
    fn give_attributes(
        &mut self,
        leaf: &Leaf<'_>,
        (source, stat): (&OwnedFd, &Stat),
        there: &Existing,
    ) -> Attempt<()> {
        let Some(dir) = leaf.directory.open()? else { return Ok(()) };
        let spot = there.spot(Spot { dir: dir.as_fd(), name: leaf.name });
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(spot.dir, spot.name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {
                openat(spot.dir, spot.name, flags | OFlags::WRONLY, Mode::empty())
            }
            answer => answer,
        };
        let fd = fd.map_err(at_sink("openat"))?;
        let (_, wanted) = modes(self.run, leaf, stat, (Some(there), Way::Existing));
        let keep = self.run.options.preserve;
        let body = Body { fd: fd.as_fd(), path: &|| leaf.destination_path() };
        let dressed = Taken::from(&Holder::Fd(source.as_fd()), keep)
            .and_then(|taken| attributes::apply_attributes(self.run, body, &taken, stat, &wanted));
        if let Err(failure) = dressed {
            self.incomplete(leaf, failure);
        }
        self.count_file(leaf, None);
        Ok(())
    }

    /// Keeps the existing file. Returns `None` if it has to be replaced after all. If the source has more
    /// names, they are linked to the existing file, or it is replaced by a link to the copy that one of
    /// them has already. A newer existing file stays unchanged.
    fn leave(
        &mut self,
        leaf: &Leaf<'_>,
        (dir, reason, there): (BorrowedFd<'_>, Skip, &Existing),
        (source, stat): (&OwnedFd, &Stat),
    ) -> Attempt<Option<NameOutcome>> {
        let has_names = self.run.options.links_names(leaf.named_by_caller(), stat.st_nlink);
        let are_files = [stat, &there.stat].map(kind) == [FileType::RegularFile; 2];
        // A link that leads to the file is no name of it: what was linked to that would lead elsewhere.
        let is_its_name = || Ok::<_, Failure>(id_of(dir, leaf.name)? == Some(Id::of(&there.stat)));
        let is_linked =
            has_names && are_files && matches!(reason, Skip::Done | Skip::Newer) && is_its_name()?;
        let left = if is_linked {
            self.leave_name(leaf, (dir, stat), &there.stat)?
        } else {
            LeftName::Stays
        };
        if matches!(left, LeftName::Waits) {
            return Ok(Some(NameOutcome::Waiting));
        }
        if matches!(left, LeftName::Linked) {
            self.list_file(leaf);
            return Ok(Some(NameOutcome::Processed));
        }
        let is_replaced = self.is_to_be_replaced(leaf, reason, (source, stat), (dir, there));
        let stays = matches!(is_replaced, Ok(false));
        if stays {
            self.skip_file(leaf, reason, (source, stat), &there.stat);
        }
        if matches!(left, LeftName::First) {
            // What is replaced is met again, and others may be the first by then.
            let copy = if stays { id_of(dir, leaf.name) } else { Ok(None) };
            self.wake_for(leaf, stat, copy)?;
        }
        Ok(if is_replaced? { None } else { Some(NameOutcome::Processed) })
    }

    fn skip_file(
        &mut self,
        leaf: &Leaf<'_>,
        reason: Skip,
        (source, stat): (&OwnedFd, &Stat),
        there: &Stat,
    ) {
        self.skip(leaf, reason);
        self.list_file(leaf);
        if reason == Skip::Done {
            self.tally.resumed += size(stat);
            self.apply_attributes_again(leaf, (source, stat), there);
        }
    }

    /// An earlier run wrote the file; it may have been killed before its attributes were complete. The time of access alone is
    /// no reason to give them again: it is that of a source which was read meanwhile.
    fn apply_attributes_again(
        &self,
        leaf: &Leaf<'_>,
        (source, stat): (&OwnedFd, &Stat),
        there: &Stat,
    ) {
        let keep = self.run.options.preserve;
        if !(keep.mode || keep.owner || keep.xattrs) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let wanted = Wanted {
            mode: keep.mode.then_some(stat.st_mode & 0o7777),
            owner: keep.owner.then_some((stat.st_uid, stat.st_gid)),
            ..Wanted::default()
        };
        let apply = || {
            let taken = Taken::from(&Holder::Fd(source.as_fd()), keep)?;
            let Some(dir) = leaf.directory.open()? else { return Ok(()) };
            let has_time = times::is_same(there, stat, || fstatfs(&dir));
            if taken.is_empty() && wanted.is_had_by(there) && has_time {
                return Ok(());
            }
            let fd = openat(dir, leaf.name, flags, Mode::empty()).map_err(at_sink("openat"))?;
            let body = Body { fd: fd.as_fd(), path: &|| leaf.destination_path() };
            attributes::apply_attributes(self.run, body, &taken, stat, &wanted)
        };
        if let Err(failure) = apply() {
            self.incomplete(leaf, failure);
        }
    }
}
