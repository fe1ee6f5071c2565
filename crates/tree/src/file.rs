//! Copies the contents of one file: decides how, checks, dresses and publishes it.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat};
use std::{
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};
use thalweg_sys::{Errno, io};

use crate::{
    Event, Fsync, Refusal, Skip, When,
    attributes::{self, Wanted},
    backup,
    contest::is_held,
    error::{Attempt, Failure, at_source},
    existing::{There, Verdict, weigh},
    hardlink::{self, Met},
    identity::{changed, kind, size},
    journal::Keeper,
    large::Job,
    naming::is_reserved,
    place::Leaf,
    publish::{Sink, Spot},
    small::SINGLE,
    sparse::seems_sparse,
    verify::are_equal,
    worker::Worker,
    xattrs::{Holder, Taken},
};

impl Worker<'_> {
    /// Copies a file with contents: a regular one, or without `-r` whatever can be read.
    pub fn file(&mut self, leaf: &Leaf<'_>) -> Attempt<()> {
        if is_reserved(leaf.name) {
            return Err(Failure::RefusedSource(Refusal::ReservedName));
        }
        let options = self.run.options;
        let source = self.open_source(leaf)?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        let is_regular = kind(&stat) == FileType::RegularFile;
        if kind(&stat) == FileType::Directory || (!is_regular && options.recursive) {
            return Err(Failure::RefusedSource(Refusal::Replaced));
        }
        let Some(dir) = leaf.directory.fd() else {
            self.count_file(leaf, None);
            return Ok(());
        };
        let verdict =
            if leaf.directory.is_fresh { Verdict::New } else { weigh(self.run, leaf, dir, &stat)? };
        if let Verdict::Skip(reason) = verdict {
            self.skip_file(leaf, reason, &source, &stat);
            return Ok(());
        }
        if options.dry_run {
            self.count_file(leaf, None);
            return Ok(());
        }
        if !(options.preserve.links && stat.st_nlink > 1 && is_regular) {
            return self.copy_contents(leaf, &source, &stat, verdict);
        }
        match self.run.links.meet(leaf, &stat) {
            Met::Waits => Ok(()),
            Met::Again(name) => {
                hardlink::link(dir, leaf, &name)?;
                self.tally.links += 1;
                self.tell_copied(leaf, None);
                Ok(())
            }
            Met::First => {
                let copied = self.copy_contents(leaf, &source, &stat, verdict);
                self.wake(match &copied {
                    Ok(()) => self.run.links.made(leaf, &stat),
                    Err(_) => self.run.links.failed(&stat),
                });
                copied
            }
        }
    }

    fn open_source(&self, leaf: &Leaf<'_>) -> Attempt<OwnedFd> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if !self.run.options.follows(leaf.named_by_caller()) {
            flags |= OFlags::NOFOLLOW;
        }
        if self.run.options.recursive {
            // What was listed as a file may be a FIFO by now: do not wait for its writer.
            flags |= OFlags::NONBLOCK;
        }
        openat(leaf.from, leaf.source, flags, Mode::empty()).map_err(at_source("openat"))
    }

    fn skip_file(&mut self, leaf: &Leaf<'_>, reason: Skip, source: &OwnedFd, stat: &Stat) {
        let options = self.run.options;
        self.skip(leaf, reason);
        if reason == Skip::Done {
            self.tally.resumed += size(stat);
            self.dress_again(leaf, source, stat);
        }
        // A skipped file still is what other names of its source are linked to.
        let counts = matches!(reason, Skip::Done | Skip::Newer);
        if options.preserve.links
            && stat.st_nlink > 1
            && counts
            && !options.dry_run
            && let Met::First = self.run.links.meet(leaf, stat)
        {
            self.wake(self.run.links.made(leaf, stat));
        }
    }

    /// An earlier run wrote the file; it may have been killed before its attributes were complete.
    fn dress_again(&self, leaf: &Leaf<'_>, source: &OwnedFd, stat: &Stat) {
        let keep = self.run.options.preserve;
        let (Some(dir), true) = (leaf.directory.fd(), keep.mode || keep.owner || keep.xattrs)
        else {
            return;
        };
        if self.run.options.dry_run {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let wanted = Wanted {
            mode: keep.mode.then_some(stat.st_mode & 0o7777),
            owner: keep.owner.then_some((stat.st_uid, stat.st_gid)),
            ..Wanted::default()
        };
        let dressed = openat(dir, leaf.name, flags, Mode::empty())
            .map_err(|errno| Failure::Sink("openat", errno, 0))
            .and_then(|fd| {
                let taken = Taken::from(&Holder::Fd(source.as_fd()), keep)?;
                attributes::dress(self.run, fd.as_fd(), &taken, stat, &wanted)
            });
        if let Err(failure) = dressed {
            self.incomplete(leaf, failure);
        }
    }

    fn copy_contents(
        &mut self,
        leaf: &Leaf<'_>,
        source: &OwnedFd,
        stat: &Stat,
        verdict: Verdict,
    ) -> Attempt<()> {
        let Some(dir) = leaf.directory.fd() else { return Ok(()) };
        let there = if let Verdict::Replace(there) = verdict { Some(there) } else { None };
        let here = Spot { dir, name: leaf.name };
        let spot = there.as_ref().map_or(here, |there| there.spot(here));
        let is_small = self.is_small(stat);
        let by_kernel = is_small && self.goes_by_kernel(leaf, stat, there.as_ref());
        // Reading and writing are timed, not the making of the file between them.
        let clock = (is_small && self.contests.is_open(size(stat))).then(Instant::now);
        let contents = if by_kernel {
            Contents { len: size(stat) as usize, is_whole: true }
        } else if is_small {
            self.read_single(source, size(stat) as usize)?
        } else {
            Contents::default()
        };
        let reading = clock.map(|began| began.elapsed());
        let way = self.way(leaf, there.as_ref(), contents.is_whole);
        let (mode, mut wanted) = self.modes(leaf, stat, there.as_ref(), way);
        let mut sink = self.open_sink(spot, way, mode, contents.is_whole)?;
        if sink.adopted {
            wanted.has_mode = None;
        }
        if there.is_some() && way == Way::Part {
            attributes::inherit(spot, sink.fd.as_fd());
            wanted.born_with_acl = true;
        }
        // Whoever was killed right after a rename left a journal without its part.
        let may_exist = !leaf.directory.is_fresh;
        let mut keeper = sink.journal().map(|at| Keeper::new(at, stat, may_exist));
        let clock = reading.map(|_| Instant::now());
        let written = if by_kernel {
            self.copy_single(source, &sink.fd, contents.len)
        } else if contents.is_whole {
            self.write_single(&sink.fd, contents.len)
        } else {
            let job = Job { source, stat, sink: &sink.fd, adopted: sink.adopted };
            self.large(&job, contents.len, keeper.as_mut())
        };
        if let (Some(reading), Some(began), true) = (reading, clock, contents.is_whole) {
            self.contests.note(by_kernel, size(stat), reading + began.elapsed());
        }
        let spot_is_kept = there.as_ref().is_some_and(There::is_written_to) || way == Way::Existing;
        let keep = self.run.options.no_clobber;
        let published = written
            .and_then(|()| self.finish(leaf, (source, stat), &sink, (there.as_ref(), &wanted)))
            .and_then(|()| match &there {
                Some(_) if !spot_is_kept => backup::set_aside(self.run.options, spot, stat),
                _ => Ok(None),
            })
            .and_then(|backup| sink.publish(keep).map(|()| backup));
        match published {
            Ok(backup) => {
                if let Some(keeper) = keeper {
                    keeper.remove();
                }
                self.count_file(leaf, backup.as_deref());
                Ok(())
            }
            Err(failure) => {
                match keeper {
                    Some(mut keeper) if self.run.options.resume && failure.may_be_resumed() => {
                        keeper.write();
                        sink.leave();
                    }
                    Some(keeper) => keeper.remove(),
                    None => {}
                }
                if keep && matches!(failure, Failure::Sink(_, Errno::EXIST, _)) {
                    self.skip(leaf, Skip::Exists);
                    return Ok(());
                }
                Err(failure)
            }
        }
    }

    /// Everything between the last byte and the name.
    fn finish(
        &mut self,
        leaf: &Leaf<'_>,
        (source, stat): (&OwnedFd, &Stat),
        sink: &Sink<'_>,
        (there, wanted): (Option<&There>, &Wanted),
    ) -> Attempt<()> {
        let options = self.run.options;
        let is_regular = kind(stat) == FileType::RegularFile;
        let is_written_to = there.is_some_and(There::is_written_to);
        let look = || fstat(source).map_err(at_source("fstat"));
        let mut has_changed = is_regular && changed(stat, &look()?);
        if let Some(hash) = options.verify.filter(|_| is_regular && !is_written_to) {
            self.make_room();
            let run = self.run;
            let ends = (source.as_fd(), sink.fd.as_fd());
            if are_equal(ends, hash, &mut self.buffer, || run.stops())? {
                self.tally.verified += 1;
            } else if has_changed || changed(stat, &look()?) {
                has_changed = true;
            } else {
                return Err(Failure::Differ);
            }
        }
        if has_changed {
            self.tally.changed += 1;
            self.run.events.event(&Event::Changed { source: &leaf.source_path() });
        }
        if is_written_to {
            return Ok(());
        }
        let dressed = Taken::from(&Holder::Fd(source.as_fd()), options.preserve)
            .and_then(|taken| attributes::dress(self.run, sink.fd.as_fd(), &taken, stat, wanted));
        if let Err(failure) = dressed {
            self.incomplete(leaf, failure);
        }
        if options.fsync != Fsync::None {
            io::fsync(&sink.fd).map_err(|errno| Failure::Sink("fsync", errno, size(stat)))?;
        }
        Ok(())
    }

    /// Whether a file is read whole into the worker's buffer, if its size is what it says.
    fn is_small(&self, stat: &Stat) -> bool {
        let options = self.run.options;
        kind(stat) == FileType::RegularFile
            && size(stat) <= SINGLE as u64
            && options.allows_single_write()
            && options.sparse != When::Always
            && options.reflink != When::Always
            && !(options.sparse == When::Auto && seems_sparse(stat))
    }

    /// Whether a small file is left to the kernel.
    fn goes_by_kernel(&mut self, leaf: &Leaf<'_>, stat: &Stat, there: Option<&There>) -> bool {
        let (Some(dir), None) = (leaf.directory.fd(), there) else { return false };
        is_held(self.run.options)
            && self.contests.chooses_kernel(stat, (dir, leaf.directory.own.dev))
    }

    /// Under which name the file is written.
    fn way(&self, leaf: &Leaf<'_>, there: Option<&There>, is_single: bool) -> Way {
        let options = self.run.options;
        match there {
            Some(there) if there.is_written_to() || options.inplace => Way::Existing,
            None if options.inplace => Way::Own,
            // Nobody can see it there, and nobody can see half of a single write.
            _ if is_single && leaf.directory.is_staged => Way::Own,
            None if is_single && !options.resume => Way::Nameless,
            _ => Way::Part,
        }
    }

    fn open_sink<'a>(
        &self,
        spot: Spot<'a>,
        way: Way,
        mode: u32,
        is_single: bool,
    ) -> Attempt<Sink<'a>> {
        let options = self.run.options;
        let reads = options.verify.is_some();
        let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
        match way {
            Way::Own => match Sink::own(spot, access, mode) {
                // An earlier run left it unfinished, in a place nobody can see.
                Err(Failure::Sink(_, Errno::EXIST, _)) => {
                    let _ = rustix::fs::unlinkat(spot.dir, spot.name, AtFlags::empty());
                    Sink::own(spot, access, mode)
                }
                answer => answer,
            },
            Way::Nameless => match Sink::nameless(spot, access, mode)? {
                Some(sink) => Ok(sink),
                None => Sink::part(spot, mode, false),
            },
            Way::Part => Sink::part(spot, mode, options.resume && !is_single),
            // Mechanisms that map the sink have to read it.
            Way::Existing if reads => Sink::existing(spot, OFlags::RDWR),
            Way::Existing => Sink::existing(spot, OFlags::WRONLY),
        }
    }

    /// The mode a file is made with, and the attributes it should have in the end.
    fn modes(
        &self,
        leaf: &Leaf<'_>,
        stat: &Stat,
        there: Option<&There>,
        way: Way,
    ) -> (u32, Wanted) {
        let run = self.run;
        let keep = run.options.preserve;
        let births = leaf.directory.births;
        let full = run.options.new_mode.unwrap_or(stat.st_mode) & 0o7777;
        let owner = keep.owner.then_some((stat.st_uid, stat.st_gid));
        let mut wanted = Wanted {
            mode: keep.mode.then_some(full),
            has_mode: None,
            owner,
            has_owner: births.owner,
            born_with_acl: births.acl,
        };
        // What the mode will be, if the kernel follows no rules but the ones known.
        let born = |mode: u32| run.me.umask.filter(|_| !births.acl).map(|umask| mode & !umask);
        match (way, there) {
            (Way::Existing, Some(there)) => {
                wanted.has_owner = Some((there.stat.st_uid, there.stat.st_gid));
                (0, wanted)
            }
            (_, Some(there)) if !keep.mode || !keep.owner => {
                wanted.has_owner = None;
                let kept = (there.stat.st_uid, there.stat.st_gid);
                let of_new = births.owner.unwrap_or((run.me.uid, run.me.gid));
                if !keep.owner && kept != of_new {
                    wanted.owner = Some(kept);
                }
                wanted.mode = wanted.mode.or(Some(there.stat.st_mode & 0o7777));
                (0o600, wanted)
            }
            // A large file may be resumed, so its owner must be able to open it until it is whole.
            (Way::Part, _) if keep.mode => {
                wanted.has_mode = born(0o600);
                (0o600, wanted)
            }
            (Way::Part, _) => {
                let mode = full & 0o777;
                if mode & 0o600 != 0o600 {
                    wanted.mode = run.me.umask.map(|umask| mode & !umask);
                }
                (mode | 0o600, wanted)
            }
            _ if keep.mode => {
                let hidden = leaf.directory.is_staged || way == Way::Nameless;
                let changes = owner.is_some() && owner != births.owner && !hidden;
                let mode = full & if changes { 0o700 } else { 0o777 };
                wanted.has_mode = born(mode);
                (mode, wanted)
            }
            _ => (full & 0o777, wanted),
        }
    }

    /// Books a file that is whole.
    fn count_file(&mut self, leaf: &Leaf<'_>, backup: Option<&std::ffi::CStr>) {
        self.tally.files += 1;
        self.finished_file();
        self.tell_copied(leaf, backup);
    }
}

/// Under which name a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its own.
    Own,
    /// None, until it is linked.
    Nameless,
    /// That of an unfinished file.
    Part,
    /// It is there already and written into.
    Existing,
}

/// What the first read of a small file brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contents {
    /// How many bytes are in the worker's buffer.
    pub len: usize,
    /// They are all there is.
    pub is_whole: bool,
}
