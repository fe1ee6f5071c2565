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
        copy_entry::CopyEntry,
        dest::{
            backup,
            conflict::{Existing, SymlinkTarget, Verdict, resolve_conflict},
            mode::{look_at, modes},
            publish::Sink,
            write_target::{WriteTarget, cannot_be_made, cannot_be_named, cannot_be_replaced},
        },
        durable::FileSync,
        name_at::NameAt,
        plans::contest::{Places, Planned},
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
        entry: &CopyEntry<'_>,
        source: &OwnedFd,
        stat: &Stat,
        verdict: Verdict,
    ) -> Attempt<Option<Id>> {
        let (mut there, link_target) = match verdict {
            Verdict::Replace(there) => (Some(there), None),
            Verdict::NewBehindLink(link_target) => (None, Some(link_target)),
            Verdict::New | Verdict::Skip(..) => (None, None),
        };
        let link_target = link_target.as_ref();
        let counts = (self.tally.verified, self.tally.changed);
        let failure = match self.copy_to(entry, source, stat, (there.as_ref(), link_target)) {
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
        self.tell_written_into(entry, failure);
        self.copy_to(entry, source, stat, (there.as_ref(), link_target))
    }

    /// Copies a file over `there`, or to a name that is free: its own, or that link_target a link.
    fn copy_to(
        &mut self,
        entry: &CopyEntry<'_>,
        source: &OwnedFd,
        stat: &Stat,
        (there, link_target): (Option<&Existing>, Option<&SymlinkTarget>),
    ) -> Attempt<Option<Id>> {
        let Some(dir) = entry.directory.open()? else { return Ok(None) };
        let dir = dir.as_fd();
        let here = NameAt { dir, name: entry.name };
        let free = link_target.map_or(here, SymlinkTarget::name_at);
        let name_at = there.map_or(free, |there| there.name_at(here));
        let no_bytes = self.run.options.attributes_only;
        let is_small = !no_bytes && self.is_small(stat);
        if !is_small && !no_bytes {
            // A large file may take long, and others may need the names.
            self.name_waiting();
        }
        let is_new = is_small && there.is_none();
        let planned = if is_new { self.planned(entry, dir, (source, stat)) } else { None };
        // Reading and writing are timed, not the making of the file between them.
        let clock =
            (is_small && self.shared.contests.is_open(&self.known, size(stat))).then(Instant::now);
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
        let write_target = self.write_target(entry, there, at_once);
        let alike = there.filter(|there| !there.is_taken_away());
        let (mode, mut wanted) = modes(self.run, entry, stat, (alike, write_target));
        let mut sink = match self.open_sink(
            entry,
            (name_at, write_target, there),
            mode,
            (at_once, source, stat),
        ) {
            Err(Failure::Sink(_, Errno::EXIST, _)) if write_target == WriteTarget::Own => {
                return self.copy_anew(entry, source, stat);
            }
            answer => answer?,
        };
        if let Some(left) = sink.left_alone() {
            self.run.left_alone(|| entry.destination_path(), left);
        }
        look_at(self.run, entry, (&sink, name_at.dir), mode, &mut wanted)?;
        let inherits = alike.is_some() && write_target == WriteTarget::Part;
        if inherits {
            (wanted.born_with_acl, wanted.has_mode) = (true, None);
        }
        let may_exist = sink.is_adopted() || !entry.directory.is_fresh;
        let mut keeper = sink.journal().map(|name| {
            Keeper::new((name_at.dir, name), Source::Local(Identity::of(stat)), may_exist)
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
                    self.uncloneable = Some(Id::of(stat));
                    drop(sink);
                    return self.copy_to(entry, source, stat, (there, link_target));
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
            self.shared.contests.note(planned.is_some(), size(stat), reading + began.elapsed());
        }
        if inherits && written.is_ok() {
            // Not before: a list of the old file may let others read and write this one.
            attributes::inherit(name_at, sink.fd().as_fd());
        }
        let elsewhere = link_target.is_some() || there.is_some_and(Existing::is_behind_link);
        let (options, concurrency) = (self.run.options, self.run.concurrency);
        let has_links = options.links_names(entry.named_by_caller(), stat.st_nlink);
        let sync =
            FileSync::of(options, concurrency, entry.directory, (there, elsewhere, has_links));
        let finished =
            written.and_then(|()| self.finish(entry, (source, stat), &sink, (there, &wanted)));
        let waits = finished.is_ok() && contents.is_whole && self.may_wait(entry, stat, sync);
        if waits && self.let_wait(entry, stat, &mut sink, (there, sync)) {
            return Ok(None);
        }
        let published =
            finished.and_then(|()| sync.perform(sink.fd(), size(stat))).and_then(|()| {
                let forgotten = keeper.as_mut().map_or(Ok(()), Keeper::forget);
                forgotten.map_err(at_sink("unlinkat"))?;
                let published = self.publish(entry, stat, (&mut sink, name_at), there)?;
                if sync == FileSync::All && elsewhere {
                    sync_directory(name_at.dir, sink.fd().as_fd())?;
                }
                Ok(published)
            });
        match published {
            Ok(Published::Named(backup)) => {
                // Small files of a tree are not asked for: they never had a part, and a call for each would cost.
                let may_have_part = cloning.is_some() || entry.named_by_caller();
                if write_target == WriteTarget::Nameless
                    && may_have_part
                    && !entry.directory.is_fresh
                {
                    // The copy is whole whatever becomes of an old part.
                    let _ = remove_leftover(name_at.dir, name_at.name, Id::of(stat));
                }
                self.tell_removed(entry, there, stat);
                self.count_file(entry, backup.as_deref());
                let copy = has_links.then(|| fstat(sink.fd()).map_err(at_sink("fstat")));
                Ok(copy.transpose()?.map(|copy| Id::of(&copy)))
            }
            Ok(Published::Skipped) => {
                self.skip(entry, Skip::Exists);
                self.list_file(entry);
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
                            let directory = &entry.directory;
                            let path = || directory.paths.destination_path().join(os(part));
                            self.run.left_part(path, directory.is_staged);
                        }
                    }
                    // The part goes, and this failure is the one to tell.
                    Some(mut keeper) => drop(keeper.forget()),
                    // A file was cut before the first byte, a device has lost what was written over.
                    None if write_target == WriteTarget::Existing
                        && there.is_some_and(|there| !there.is_special() || self.of_file > 0) =>
                    {
                        self.run.torn(entry.destination_path());
                    }
                    None => {}
                }
                // The part was spoilt where its journal said that it is true: it is gone now.
                if sink.is_adopted() && matches!(failure, Failure::Differ) {
                    drop(sink);
                    self.tell_again(entry);
                    return self.copy_anew(entry, source, stat);
                }
                if write_target == WriteTarget::Nameless && cannot_be_named(&failure) {
                    drop(sink);
                    self.no_tmpfile = true;
                    return self.copy_anew(entry, source, stat);
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
    fn copy_anew(
        &mut self,
        entry: &CopyEntry<'_>,
        source: &OwnedFd,
        stat: &Stat,
    ) -> Attempt<Option<Id>> {
        let Some(dir) = entry.directory.open()? else { return Ok(None) };
        let dir = dir.as_fd();
        if kind(stat) == FileType::RegularFile {
            seek(source, SeekFrom::Start(0)).map_err(at_source("lseek"))?;
        }
        match resolve_conflict(self.run, entry, dir, stat)? {
            // Copied again rather than compared: another process is at work here.
            Verdict::Skip(Skip::Done, there) if there.is_doubted => {
                self.copy_contents(entry, source, stat, Verdict::Replace(there))
            }
            Verdict::Skip(reason, _) => {
                self.skip(entry, reason);
                self.list_file(entry);
                Ok(None)
            }
            verdict => self.copy_contents(entry, source, stat, verdict),
        }
    }

    /// Gives the copy its name, and what gives write_target to it another one if that is wanted.
    pub(super) fn publish(
        &self,
        entry: &CopyEntry<'_>,
        stat: &Stat,
        (sink, name_at): (&mut Sink<'_>, NameAt<'_>),
        there: Option<&Existing>,
    ) -> Attempt<Published> {
        let options = self.run.options;
        if there.is_some_and(|there| there.is_written_into(options)) {
            return sink.publish(false).map(|()| Published::Named(None));
        }
        if there.is_none() {
            // The name was free: what has it now is somebody else's, or in a new directory our own
            // copy of a name that the file system does not tell from this one.
            let is_fresh = entry.directory.is_fresh;
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
        let backup = backup::set_aside(options, name_at, entry, stat)?;
        sink.publish(false).map(|()| Published::Named(backup))
    }

    /// Everything between the last byte and the name.
    fn finish(
        &mut self,
        entry: &CopyEntry<'_>,
        (source, stat): (&OwnedFd, &Stat),
        sink: &Sink<'_>,
        (there, wanted): (Option<&Existing>, &Wanted),
    ) -> Attempt<()> {
        let options = self.run.options;
        let is_regular = kind(stat) == FileType::RegularFile;
        let is_special = there.is_some_and(Existing::is_special);
        // Before the attributes: what is still on its write_target would change the times.
        if there.is_some() || entry.directory.may_tell_at_close {
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
            self.run.events.event(&Event::Changed { source: &entry.source_path() });
        }
        if is_special {
            return Ok(());
        }
        let body = Body { fd: sink.fd().as_fd(), path: &|| entry.destination_path() };
        let dressed = Taken::from(&Holder::Fd(source.as_fd()), options.preserve)
            .and_then(|taken| attributes::apply_attributes(self.run, body, &taken, stat, wanted));
        if let Err(failure) = dressed {
            self.incomplete(entry, failure);
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
        entry: &CopyEntry<'_>,
        dir: BorrowedFd<'_>,
        (source, stat): (&OwnedFd, &Stat),
    ) -> Option<Arc<Planned>> {
        let places = Places { source, stat, dir, device: entry.directory.own.dev };
        let (options, shared) = (self.run.options, self.shared);
        shared.contests.plan(&mut self.known, &places, (options, &shared.pairs))
    }
}

/// What became of a copy that is whole.
pub(crate) enum Published {
    /// It has its name; that of the backup.
    Named(Option<CString>),
    /// Nothing may be replaced, and another process was faster.
    Skipped,
}
