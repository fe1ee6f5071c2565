//! Copies entries without contents: symbolic links, FIFOs, sockets and device nodes. Also creates links to the source.
//!
//! The steps are those of a file copy, without bytes to transfer and verify: prepare, create, apply attributes, install.

use rustix::fs::{FileType, Mode, Stat, readlinkat};
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd},
};
use thalweg_core::atomic_file::{
    name::{PART, beside},
    unlink,
};

use crate::{
    AttributeDifferences, Becomes, ChangeAction, Refusal, Skip,
    copy::{
        compared::of_node,
        contents::recheck::check_node,
        copy_entry::CopyEntry,
        dest::{
            backup::set_aside,
            conflict::resolve_conflict,
            existing::{DestinationVerdict, Existing},
        },
        entry::{
            hardlink::{NameClaim, claim_name, expect_retry, wake_for},
            new_node::apply_attributes,
        },
        links::id_of,
        name_at::{CopyPlacement, NameAt},
        run::Concurrency,
        shared::ForeseenName,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink, at_source},
    fs::special::{NewEntry, TemporaryEntry},
    identity::{Id, kind},
};

/// Copies a symbolic link as a link.
pub(crate) fn copy_symlink(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<()> {
    let mut stat = entry.stat(false)?;
    worker.run.options.given.apply(&mut stat);
    let target = readlinkat(entry.from.open()?, entry.source, Vec::new());
    let target = target.map_err(at_source("readlinkat"))?;
    copy_node(worker, entry, &stat, &NewEntry::Symlink(&target))
}

/// Creates a special file like the source.
pub(crate) fn copy_special(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    kind: FileType,
) -> Attempt<()> {
    let mut stat = entry.stat(worker.run.options.follows(entry.named_by_caller()))?;
    worker.run.options.given.apply(&mut stat);
    let mode = worker.run.options.new_mode.unwrap_or(stat.st_mode);
    let mode = Mode::from_raw_mode(mode & 0o777);
    copy_node(worker, entry, &stat, &NewEntry::Special { kind, mode, device: stat.st_rdev })
}

/// Creates an entry without contents, and sets its attributes.
pub(crate) fn copy_node(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    stat: &Stat,
    new: &NewEntry<'_>,
) -> Attempt<()> {
    let options = worker.run.options;
    let is_copy = options.becomes == Becomes::Copy;
    let has_names = is_copy && options.preserve.links && stat.st_nlink > 1;
    let mut copy = NodeCopy { worker, entry, stat, new, has_names };
    let Some(dir) = entry.directory.open()? else {
        copy.foresee(None);
        return Ok(());
    };
    let copied = copy.run(dir.as_fd());
    expect_retry(worker, stat, copied.as_ref().err());
    copied
}

/// The copy of one entry without contents.
struct NodeCopy<'c, 'r> {
    worker: &'c mut CopyWorker<'r>,
    entry: &'c CopyEntry<'c>,
    /// The attributes of the source.
    stat: &'c Stat,
    new: &'c NewEntry<'c>,
    /// `true` if other names of the source are linked to the copy.
    has_names: bool,
}

/// The existing entry that the new one replaces.
struct PreparedNode {
    existing: Option<Existing>,
    /// In a sync, the differences between the source and the existing entry.
    differs: Option<AttributeDifferences>,
}

impl NodeCopy<'_, '_> {
    fn run(&mut self, dir: BorrowedFd<'_>) -> Attempt<()> {
        let Some(prepared) = self.prepare(dir)? else { return Ok(()) };
        if self.worker.run.options.dry_run {
            self.foresee(prepared.differs);
            return Ok(());
        }
        match self.claim(dir, self.has_names, None)? {
            NameClaim::Waits => return Ok(()),
            NameClaim::Linked => self.note(prepared.differs),
            NameClaim::Separate | NameClaim::Kept => drop(self.create(dir, &prepared)?),
            NameClaim::First => {
                let created = self.create(dir, &prepared);
                wake_for(self.worker, self.entry, self.stat, created)?;
            }
        }
        Ok(())
    }

    fn claim(
        &mut self,
        dir: BorrowedFd<'_>,
        has_names: bool,
        kept: Option<&Stat>,
    ) -> Attempt<NameClaim> {
        let at = CopyPlacement { dir, stat: self.stat };
        if has_names {
            claim_name(self.worker, self.entry, at, kept)
        } else {
            Ok(NameClaim::Separate)
        }
    }

    /// Decides whether the entry is created. Returns `None` if nothing is to be created.
    fn prepare(&mut self, dir: BorrowedFd<'_>) -> Attempt<Option<PreparedNode>> {
        let (run, entry) = (self.worker.run, self.entry);
        let options = run.options;
        let verdict = if entry.directory.is_fresh {
            DestinationVerdict::New
        } else {
            resolve_conflict(run, entry, dir, self.stat)?
        };
        let existing = match verdict {
            DestinationVerdict::New | DestinationVerdict::NewBehindLink(_) => None,
            DestinationVerdict::Replace(there) => Some(there),
            DestinationVerdict::Skip(reason, there) => {
                let has_names = self.has_names && reason == Skip::Newer && !options.dry_run;
                return self.leave(dir, reason, &there, has_names).map(|()| None);
            }
        };
        let mut differs = None;
        if let Some(there) = &existing
            && options.sync.is_some()
            && options.becomes == Becomes::Copy
        {
            let found = of_node(run, entry, dir, [self.stat, &there.stat], self.new)?;
            if !found.any() {
                return self.keep_equal(dir, there).map(|()| None);
            }
            differs = Some(found);
        }
        Ok(Some(PreparedNode { existing, differs }))
    }

    /// Creates the entry with its attributes, counts it and reports it. Returns its identity, or `None` if it was skipped,
    /// because another process created the name and nothing may be replaced.
    fn create(&mut self, dir: BorrowedFd<'_>, prepared: &PreparedNode) -> Attempt<Option<Id>> {
        let (entry, at) = (self.entry, CopyPlacement { dir, stat: self.stat });
        let mut backup = None;
        match (self.new.create(dir, entry.name)?, &prepared.existing) {
            (true, _) => apply_attributes(self.worker, entry, at, entry.name),
            (false, _) if entry.directory.is_fresh => {
                return Err(CopyFailure::Refused(Refusal::JustCreated));
            }
            (false, Some(there)) => {
                let temporary = self.create_beside(dir)?;
                apply_attributes(self.worker, entry, at, temporary.name());
                backup = self.install(dir, temporary)?;
                self.worker.report_removed(entry, Some(there), self.stat);
            }
            (false, None) if self.worker.run.options.replaces_nothing() => {
                self.worker.skip(entry, Skip::Exists);
                return Ok(None);
            }
            (false, None) => return Err(CopyFailure::Refused(Refusal::Replaced)),
        }
        self.worker.report_copied(entry, backup.as_deref());
        self.count();
        self.note(prepared.differs);
        if self.has_names { id_of(dir, entry.name) } else { Ok(None) }
    }

    /// Creates the replacement of an existing entry under a temporary name.
    fn create_beside<'d>(&self, dir: BorrowedFd<'d>) -> Attempt<TemporaryEntry<'d>> {
        let name = self.entry.name;
        if self.worker.run.concurrency == Concurrency::Linkers {
            // All workers use one temporary name for this entry, so a worker finds the leftover of a killed worker.
            let shared = beside(name, &[PART, b".link"].concat());
            if self.new.create(dir, &shared)? || id_of(dir, &shared)? == Some(Id::of(self.stat)) {
                return Ok(TemporaryEntry::existing(dir, shared));
            }
            unlink(dir, &shared).map_err(at_sink("unlinkat"))?;
        }
        Ok(self.new.create_beside(dir, name)?)
    }

    /// Replaces the existing entry. Returns the name of its backup.
    fn install(
        &self,
        dir: BorrowedFd<'_>,
        temporary: TemporaryEntry<'_>,
    ) -> Attempt<Option<CString>> {
        let name_at = NameAt { dir, name: self.entry.name };
        let backup = set_aside(self.worker.run.options, name_at, self.entry, self.stat)?;
        temporary.install(self.entry.name, false)?;
        Ok(backup)
    }

    /// Reports the entry that a dry run would create.
    fn foresee(&mut self, differs: Option<AttributeDifferences>) {
        self.worker.report_copied(self.entry, None);
        if self.has_names && self.worker.foresee_name(self.stat, None) != ForeseenName::First {
            self.worker.tally.links += 1;
        } else {
            self.count();
        }
        self.note(differs);
    }

    fn count(&mut self) {
        match self.new {
            NewEntry::Special { .. } => self.worker.tally.specials += 1,
            NewEntry::Symlink(_) | NewEntry::HardLink { .. } => self.worker.tally.links += 1,
        }
    }

    /// Reports a new or replaced entry of a sync. `differs`: the differences of the replaced entry.
    fn note(&mut self, differs: Option<AttributeDifferences>) {
        let (entry, stat) = (self.entry, self.stat);
        match differs {
            Some(differs) if differs.kind || differs.content => {
                self.worker.note_change(entry, ChangeAction::Replace, stat, differs);
            }
            Some(differs) => self.worker.note_attributes(entry, stat, differs),
            None => self.worker.note_copied(entry, stat, None),
        }
    }

    /// Keeps an existing entry of a sync that is equal to its source. In a dry run, only reports it.
    fn keep_equal(&mut self, dir: BorrowedFd<'_>, there: &Existing) -> Attempt<()> {
        let (entry, stat) = (self.entry, self.stat);
        if !self.worker.run.options.dry_run {
            return self.leave(dir, Skip::Done, there, self.has_names);
        }
        let none = AttributeDifferences::default();
        let is_linked = self.has_names
            && self.worker.foresee_name(stat, Some(&there.stat)) == ForeseenName::Linked;
        if is_linked {
            self.worker.tally.links += 1;
            self.worker.note_change(entry, ChangeAction::Link, stat, none);
        } else {
            self.worker.note_attributes(entry, stat, none);
        }
        Ok(())
    }

    /// Keeps the existing entry. If the source has more names, they are linked to it. If another name is already
    /// copied, a link to that copy replaces the existing entry.
    fn leave(
        &mut self,
        dir: BorrowedFd<'_>,
        reason: Skip,
        there: &Existing,
        has_names: bool,
    ) -> Attempt<()> {
        let (entry, at) = (self.entry, CopyPlacement { dir, stat: self.stat });
        let stat = self.stat;
        let is_alike = kind(stat) == kind(&there.stat) && stat.st_rdev == there.stat.st_rdev;
        let claim = self.claim(dir, has_names && is_alike, Some(&there.stat))?;
        let none = AttributeDifferences::default();
        match claim {
            NameClaim::Linked => {
                self.worker.note_change(entry, ChangeAction::Link, stat, none);
                return Ok(());
            }
            NameClaim::Waits => return Ok(()),
            NameClaim::First | NameClaim::Separate | NameClaim::Kept => {}
        }
        self.worker.note_attributes(entry, stat, none);
        if matches!(claim, NameClaim::First) {
            wake_for(self.worker, entry, stat, id_of(dir, entry.name))?;
        }
        self.worker.skip(entry, reason);
        if self.worker.run.options.becomes == Becomes::Copy {
            check_node(self.worker, entry, at, there)?;
        }
        Ok(())
    }
}
