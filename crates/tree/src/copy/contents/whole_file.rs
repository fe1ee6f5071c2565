//! Moves the contents of one file, checks them, sets the attributes of the copy and gives it its name.

use rustix::fs::{FileType, SeekFrom, Stat, fstat, seek};
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};
use thalweg_core::atomic_file::{remove_leftover, sync_directory};
use thalweg_sys::{Errno, io};

use crate::{
    Backup, Event, Refusal, Skip, When,
    copy::{
        attributes::{self, Body, Wanted},
        contents::{
            clone::Cloning, job::Job, small::Contents, sparse::seems_sparse, verify::SinkEnd,
        },
        dest::{
            backup,
            conflict::{Behind, Existing, Verdict, resolve_conflict},
            mode::{look_at, modes},
            publish::Sink,
            way::{Way, cannot_be_made, cannot_be_named, cannot_be_replaced},
        },
        durable::FileSync,
        leaf::Leaf,
        plans::contest::{Places, Planned},
        spot::Spot,
        worker::{Worker, single},
    },
    error::{Attempt, Failure, at_sink, at_source},
    identity::{Id, changed, kind, size},
    journal::{Identity, Keeper, Source},
    names::os,
    xattrs::{Holder, Taken},
};

impl Worker<'_> {
    /// Copies a file whose name is free or may be taken. Answers which file it became if
    /// others may be linked to it; `None` if it was not copied after all.
    pub fn copy_contents(
        &mut self,
        leaf: &Leaf<'_>,
        source: &OwnedFd,
        stat: &Stat,
        verdict: Verdict,
    ) -> Attempt<Option<Id>> {
        let (mut there, behind) = match verdict {
            Verdict::Replace(there) => (Some(there), None),
            Verdict::NewBehind(behind) => (None, Some(behind)),
            Verdict::New | Verdict::Skip(..) => (None, None),
        };
        let behind = behind.as_ref();
        let counts = (self.tally.verified, self.tally.changed);
        let failure = match self.copy_to(leaf, source, stat, (there.as_ref(), behind)) {
            Err(failure) if self.can_be_written_into(there.as_ref(), stat, &failure) => failure,
            answer => return answer,
        };
        // As cp does at once.
        if kind(stat) == FileType::RegularFile {
            seek(source, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
        }
        (self.tally.verified, self.tally.changed) = counts;
        if let Some(there) = &mut there {
            there.keeps_inode = true;
        }
        self.tell_written_into(leaf, failure);
        self.copy_to(leaf, source, stat, (there.as_ref(), behind))
    }

    /// Copies a file over `there`, or to a name that is free: its own, or that behind a link.
    fn copy_to(
        &mut self,
        leaf: &Leaf<'_>,
        source: &OwnedFd,
        stat: &Stat,
        (there, behind): (Option<&Existing>, Option<&Behind>),
    ) -> Attempt<Option<Id>> {
        let Some(dir) = leaf.directory.open()? else { return Ok(None) };
        let dir = dir.as_fd();
        let here = Spot { dir, name: leaf.name };
        let free = behind.map_or(here, Behind::spot);
        let spot = there.map_or(free, |there| there.spot(here));
        let no_bytes = self.run.options.attributes_only;
        let is_small = !no_bytes && self.is_small(stat);
        if !is_small && !no_bytes {
            // A large file may take long, and others may need the names.
            self.name_waiting();
        }
        let is_new = is_small && there.is_none();
        let planned = if is_new { self.planned(leaf, dir, (source, stat)) } else { None };
        // Reading and writing are timed, not the making of the file between them.
        let clock =
            (is_small && self.crew.contests.is_open(&self.known, size(stat))).then(Instant::now);
        let contents = if planned.is_some() {
            Contents { len: size(stat) as usize, is_whole: true }
        } else if no_bytes {
            Contents { len: 0, is_whole: true }
        } else if is_small {
            self.read_single(source, size(stat) as usize)?
        } else {
            Contents::default()
        };
        let reading = clock.map(|began| began.elapsed());
        let cloning = if is_small || no_bytes || there.is_some() {
            None
        } else {
            self.cloning(dir, (source, stat))
        };
        let at_once = contents.is_whole || cloning.is_some();
        let way = self.way(leaf, there, at_once);
        let alike = there.filter(|there| !there.is_taken_away());
        let (mode, mut wanted) = modes(self.run, leaf, stat, (alike, way));
        let mut sink = match self.open_sink(leaf, (spot, way, there), mode, (at_once, source, stat))
        {
            Err(Failure::Sink(_, Errno::EXIST, _)) if way == Way::Own => {
                return self.copy_anew(leaf, source, stat);
            }
            answer => answer?,
        };
        if let Some(left) = sink.left_alone() {
            self.run.left_alone(|| leaf.destination_path(), left);
        }
        look_at(self.run, leaf, (&sink, spot.dir), mode, &mut wanted)?;
        let inherits = alike.is_some() && way == Way::Part;
        if inherits {
            (wanted.born_with_acl, wanted.has_mode) = (true, None);
        }
        let may_exist = sink.is_adopted() || !leaf.directory.is_fresh;
        let mut keeper = sink.journal().map(|name| {
            Keeper::new((spot.dir, name), Source::Local(Identity::of(stat)), may_exist)
        });
        // Whoever removed a part by hand left its journal.
        if let Some(keeper) = keeper.as_mut().filter(|_| !sink.is_adopted()) {
            keeper.forget().map_err(at_sink("unlinkat"))?;
        }
        let clock = reading.map(|_| Instant::now());
        let written = if let Some(cloning) = &cloning {
            match (self.clone_whole((source, stat), sink.fd()), cloning) {
                (Ok(()), _) => Ok(()),
                (Err(errno), Cloning::Must) => Err(Failure::Sink("FICLONE", errno, 0)),
                (Err(errno), Cloning::May(planned)) => {
                    self.was_no_clone(errno, planned);
                    self.declined = Some(Id::of(stat));
                    drop(sink);
                    return self.copy_to(leaf, source, stat, (there, behind));
                }
            }
        } else if let Some(planned) = &planned {
            self.move_small(source, sink.fd(), contents.len, planned)
        } else if contents.is_whole {
            self.write_single(sink.fd(), contents.len)
        } else {
            let takes_holes = there.is_none_or(|there| !there.is_special());
            let job =
                Job { source, stat, sink: sink.fd(), adopted: sink.is_adopted(), takes_holes };
            self.large(&job, contents.len, keeper.as_mut())
        };
        if let (Some(reading), Some(began), true) = (reading, clock, contents.is_whole) {
            self.crew.contests.note(planned.is_some(), size(stat), reading + began.elapsed());
        }
        if inherits && written.is_ok() {
            // Not before: a list of the old file may let others read and write this one.
            attributes::inherit(spot, sink.fd().as_fd());
        }
        let elsewhere = behind.is_some() || there.is_some_and(Existing::is_behind_link);
        let (options, company) = (self.run.options, self.run.company);
        let has_links = options.links_names(leaf.named_by_caller(), stat.st_nlink);
        let sync = FileSync::of(options, company, leaf.directory, (there, elsewhere, has_links));
        let finished =
            written.and_then(|()| self.finish(leaf, (source, stat), &sink, (there, &wanted)));
        let waits = finished.is_ok() && contents.is_whole && self.may_wait(leaf, stat, sync);
        if waits && self.let_wait(leaf, stat, &mut sink, (there, sync)) {
            return Ok(None);
        }
        let published =
            finished.and_then(|()| sync.perform(sink.fd(), size(stat))).and_then(|()| {
                let forgotten = keeper.as_mut().map_or(Ok(()), Keeper::forget);
                forgotten.map_err(at_sink("unlinkat"))?;
                let published = self.publish(leaf, stat, (&mut sink, spot), there)?;
                if sync == FileSync::All && elsewhere {
                    sync_directory(spot.dir, sink.fd().as_fd())?;
                }
                Ok(published)
            });
        match published {
            Ok(Published::Named(backup)) => {
                // Small files of a tree are not asked for: they never had a part, and a call for each would cost.
                let may_have_part = cloning.is_some() || leaf.named_by_caller();
                if way == Way::Nameless && may_have_part && !leaf.directory.is_fresh {
                    // The copy is whole whatever becomes of an old part.
                    let _ = remove_leftover(spot.dir, spot.name, Id::of(stat));
                }
                self.tell_removed(leaf, there, stat);
                self.count_file(leaf, backup.as_deref());
                let copy = has_links.then(|| fstat(sink.fd()).map_err(at_sink("fstat")));
                Ok(copy.transpose()?.map(|copy| Id::of(&copy)))
            }
            Ok(Published::Skipped) => {
                self.skip(leaf, Skip::Exists);
                self.list_file(leaf);
                Ok(None)
            }
            Err(failure) => {
                // What is written into the old file next is of no use to a later run.
                let is_given_up = self.can_be_written_into(there, stat, &failure);
                let is_left = self.run.options.resume && failure.may_be_resumed() && !is_given_up;
                match keeper {
                    Some(mut keeper) if is_left => {
                        keeper.write();
                        if let Some(part) = sink.leave() {
                            let directory = &leaf.directory;
                            let path = || directory.paths.destination_path().join(os(part));
                            self.run.left_part(path, directory.is_staged);
                        }
                    }
                    // The part goes, and this failure is the one to tell.
                    Some(mut keeper) => drop(keeper.forget()),
                    // A file was cut before the first byte, a device has lost what was written over.
                    None if way == Way::Existing
                        && there.is_some_and(|there| !there.is_special() || self.of_file > 0) =>
                    {
                        self.run.torn(leaf.destination_path());
                    }
                    None => {}
                }
                // The part was spoilt where its journal said that it is true: it is gone now.
                if sink.is_adopted() && matches!(failure, Failure::Differ) {
                    drop(sink);
                    self.tell_again(leaf);
                    return self.copy_anew(leaf, source, stat);
                }
                if way == Way::Nameless && cannot_be_named(&failure) {
                    drop(sink);
                    self.names_all = true;
                    return self.copy_anew(leaf, source, stat);
                }
                Err(failure)
            }
        }
    }

    /// Whether a copy that failed may go into the file that it was to replace.
    fn can_be_written_into(
        &self,
        there: Option<&Existing>,
        stat: &Stat,
        failure: &Failure,
    ) -> bool {
        let options = self.run.options;
        let is_refused = match failure {
            Failure::Sink("openat", errno, _) => cannot_be_made(*errno),
            // A pipe that was read cannot be read again.
            Failure::Sink("renameat2", errno, _) if kind(stat) == FileType::RegularFile => {
                cannot_be_replaced(*errno)
            }
            _ => false,
        };
        // A backup would have to be made beside it too.
        let wants_backup = options.backup != Backup::None;
        let may_be = |there: &Existing| !there.is_written_into(options) && !there.is_taken_away();
        is_refused && !wants_backup && there.is_some_and(may_be)
    }

    /// Begins again with another look at the name: another process may have taken it.
    fn copy_anew(&mut self, leaf: &Leaf<'_>, source: &OwnedFd, stat: &Stat) -> Attempt<Option<Id>> {
        let Some(dir) = leaf.directory.open()? else { return Ok(None) };
        let dir = dir.as_fd();
        if kind(stat) == FileType::RegularFile {
            seek(source, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
        }
        match resolve_conflict(self.run, leaf, dir, stat)? {
            // Copied again rather than compared: another process is at work here.
            Verdict::Skip(Skip::Done, there) if there.is_doubted => {
                self.copy_contents(leaf, source, stat, Verdict::Replace(there))
            }
            Verdict::Skip(reason, _) => {
                self.skip(leaf, reason);
                self.list_file(leaf);
                Ok(None)
            }
            verdict => self.copy_contents(leaf, source, stat, verdict),
        }
    }

    /// Gives the copy its name, and what gives way to it another one if that is wanted.
    pub(super) fn publish(
        &self,
        leaf: &Leaf<'_>,
        stat: &Stat,
        (sink, spot): (&mut Sink<'_>, Spot<'_>),
        there: Option<&Existing>,
    ) -> Attempt<Published> {
        let options = self.run.options;
        if there.is_some_and(|there| there.is_written_into(options)) {
            return sink.publish(false).map(|()| Published::Named(None));
        }
        if there.is_none() {
            // The name was free: what has it now is somebody else's, or in a new directory our own
            // copy of a name that the file system does not tell from this one.
            let is_fresh = leaf.directory.is_fresh;
            let is_wanted =
                is_fresh || options.replaces_nothing() || options.backup != Backup::None;
            match sink.publish(is_wanted) {
                Err(Failure::Sink(_, Errno::EXIST, _)) if is_fresh => {
                    return Err(Failure::Refused(Refusal::JustCreated));
                }
                Err(Failure::Sink(_, Errno::EXIST, _)) if options.replaces_nothing() => {
                    return Ok(Published::Skipped);
                }
                Err(Failure::Sink(_, Errno::EXIST, _)) if is_wanted => {}
                answer => return answer.map(|()| Published::Named(None)),
            }
        }
        let backup = backup::set_aside(options, spot, leaf, stat)?;
        sink.publish(false).map(|()| Published::Named(backup))
    }

    /// Everything between the last byte and the name.
    fn finish(
        &mut self,
        leaf: &Leaf<'_>,
        (source, stat): (&OwnedFd, &Stat),
        sink: &Sink<'_>,
        (there, wanted): (Option<&Existing>, &Wanted),
    ) -> Attempt<()> {
        let options = self.run.options;
        let is_regular = kind(stat) == FileType::RegularFile;
        let is_special = there.is_some_and(Existing::is_special);
        // Before the attributes: what is still on its way would change the times.
        if there.is_some() || leaf.directory.may_tell_at_close {
            io::flush(sink.fd()).map_err(|errno| Failure::Sink("close", errno, size(stat)))?;
        }
        let look = || fstat(source).map_err(at_source("fstat"));
        let mut has_changed = is_regular && changed(stat, &look()?);
        let can_be_read_again = is_regular && there.is_none_or(Existing::can_be_read_again);
        let is_unread = options.verify.is_some() && !can_be_read_again;
        self.tally.verified.not_read += u64::from(is_unread);
        // What follows on a device is not ours.
        let limit = if is_special { SinkEnd::OfSource } else { SinkEnd::Own };
        if let Some(hash) = options.verify.filter(|_| can_be_read_again)
            && !self.is_equal((source.as_fd(), sink.fd().as_fd(), limit), hash)?
        {
            has_changed = has_changed || changed(stat, &look()?);
            if !has_changed {
                return Err(Failure::Differ);
            }
        }
        if has_changed {
            self.tally.changed += 1;
            self.run.events.event(&Event::Changed { source: &leaf.source_path() });
        }
        if is_special {
            return Ok(());
        }
        let body = Body { fd: sink.fd().as_fd(), path: &|| leaf.destination_path() };
        let dressed = Taken::from(&Holder::Fd(source.as_fd()), options.preserve)
            .and_then(|taken| attributes::apply_attributes(self.run, body, &taken, stat, wanted));
        if let Err(failure) = dressed {
            self.incomplete(leaf, failure);
        }
        Ok(())
    }

    /// Whether a file is read whole into the worker's buffer, if its size is what it says.
    fn is_small(&self, stat: &Stat) -> bool {
        let options = self.run.options;
        kind(stat) == FileType::RegularFile
            && size(stat) <= single() as u64
            && options.allows_single_write()
            && options.sparse != When::Always
            && options.reflink != When::Always
            && !(options.sparse == When::Auto && seems_sparse(stat))
    }

    /// How a new small file goes if not by read and write.
    fn planned(
        &mut self,
        leaf: &Leaf<'_>,
        dir: BorrowedFd<'_>,
        (source, stat): (&OwnedFd, &Stat),
    ) -> Option<Arc<Planned>> {
        let places = Places { source, stat, dir, device: leaf.directory.own.dev };
        let (options, crew) = (self.run.options, self.crew);
        crew.contests.plan(&mut self.known, &places, (options, &crew.pairs))
    }
}

/// What became of a copy that is whole.
pub(crate) enum Published {
    /// It has its name; that of the backup.
    Named(Option<CString>),
    /// Nothing may be replaced, and another process was faster.
    Skipped,
}
