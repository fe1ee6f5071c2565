//! Counts and reports the changes of a sync.

use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::os::fd::AsFd;

use crate::{
    AttributeDifferences, ChangeAction, Event, SyncChange,
    copy::{
        compared::{of_entry, of_stats},
        copy_entry::CopyEntry,
        shared::ForeseenName,
        worker::CopyWorker,
    },
    error::Attempt,
    identity::{Id, kind, size},
};

/// Returns `true` if a regular file has an equal copy, and counts it. Opens neither of them. Also returns `false` for
/// files that need further checks.
pub(crate) fn is_unchanged(worker: &mut CopyWorker<'_>, entry: &CopyEntry<'_>) -> Attempt<bool> {
    let run = worker.run;
    let options = run.options;
    if options.sync.is_none()
        || options.compares_bytes()
        || options.verify.is_some()
        || entry.directory.is_staged
        || entry.directory.is_fresh
    {
        return Ok(false);
    }
    let Some(dir) = entry.directory.open()? else { return Ok(false) };
    let follows = options.follows(entry.named_by_caller());
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let source = statat(entry.from.open()?, entry.source, flags);
    let there = statat(&dir, entry.name, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(mut source), Ok(there)) = (source, there) else { return Ok(false) };
    options.given.apply(&mut source);
    let is_file = |stat: &Stat| kind(stat) == FileType::RegularFile;
    if !is_file(&source)
        || !is_file(&there)
        || options.links_names(entry.named_by_caller(), source.st_nlink)
        || of_entry(run, entry, dir.as_fd(), &source, &there)?.any()
    {
        return Ok(false);
    }
    run.expect_not_listed_over(&source, || entry.source_path());
    worker.tally.sync.unchanged += 1;
    worker.tally.skipped += 1;
    worker.list_file(entry);
    worker.take_up(entry, 0);
    worker.settle(size(&source));
    Ok(true)
}

impl CopyWorker<'_> {
    /// Counts and reports a new or replaced entry. `there`: the attributes of the entry that had its name.
    pub fn note_copied(&mut self, entry: &CopyEntry<'_>, source: &Stat, there: Option<&Stat>) {
        if self.run.options.sync.is_none() {
            return;
        }
        // An entry of a staging directory is not visible yet.
        let there = there.filter(|_| !entry.directory.is_staged);
        let dir = entry.directory.open().ok().flatten();
        let Some((there, dir)) = there.zip(dir) else {
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        };
        let mut differs = of_stats(self.run, dir.as_fd(), source, there);
        differs.content = !differs.any() || self.run.options.compares_bytes();
        self.note_change(entry, ChangeAction::Replace, source, differs);
    }

    /// Counts and reports an entry that got other attributes, or none.
    pub fn note_attributes(
        &mut self,
        entry: &CopyEntry<'_>,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        if entry.directory.is_staged {
            // An earlier run left it in a directory that is not visible yet.
            let none = AttributeDifferences::default();
            return self.note_change(entry, ChangeAction::Create, source, none);
        }
        if differs.any() {
            self.note_change(entry, ChangeAction::Attributes, source, differs);
        } else {
            self.tally.sync.unchanged += 1;
        }
    }

    /// Counts and reports a change of a sync.
    pub fn note_change(
        &mut self,
        entry: &CopyEntry<'_>,
        action: ChangeAction,
        source: &Stat,
        differs: AttributeDifferences,
    ) {
        if self.run.options.sync.is_none() {
            return;
        }
        self.tally.sync.count(action);
        if !self.run.options.verbose {
            return;
        }
        let is_directory = kind(source) == FileType::Directory;
        self.run.events.event(&Event::Sync(&SyncChange {
            path: &entry.path_below(self.run.options),
            action,
            kind: kind(source),
            is_linked: !is_directory && self.run.options.links_names(false, source.st_nlink),
            size: size(source),
            differs,
        }));
    }

    /// In a dry run, returns the outcome for one of several names of a source. `there`: the existing file, if it is
    /// equal to the source; `None` if this name will be a new file.
    pub fn foresee_name(&self, source: &Stat, there: Option<&Stat>) -> ForeseenName {
        self.shared.foresee(Id::of(source), there.map(Id::of))
    }
}
