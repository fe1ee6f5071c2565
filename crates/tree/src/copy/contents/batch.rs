//! Small files of a tree that must be synced before they get their names: many of them wait for one sync.
//!
//! To sync each by itself costs a flush of the disk for each. They keep their temporary names, and the old files theirs,
//! until one syncfs(2) was made for all of them.

use rustix::fs::Stat;
use std::{os::fd::AsFd, sync::Arc};
use thalweg_core::atomic_file::Parked;

use crate::{
    Skip,
    copy::{
        contents::whole_file::Published,
        copy_entry::CopyEntry,
        dest::{conflict::Existing, publish::Sink},
        directory::Directory,
        durable::FileSync,
        name_at::NameAt,
        waiting::Waiting,
        worker::Worker,
    },
    error::{Attempt, Failure},
    identity::size,
};

/// Fewer are synced one by one: syncfs(2) may have to wait for what other processes wrote.
const FEW: usize = 4;

impl Worker<'_> {
    /// Whether a small file of this directory may wait for its name.
    pub fn may_wait(&self, entry: &CopyEntry<'_>, stat: &Stat, sync: FileSync) -> bool {
        let has_links = self.run.options.links_names(false, stat.st_nlink);
        sync != FileSync::Nothing
            && self.run.most_waiting > 0
            && entry.directory.is_synced_whole
            && !entry.named_by_caller()
            && !self.is_by_itself
            // Others wait to be linked to it.
            && !has_links
    }

    /// Has a file wait; `false` if it cannot.
    pub fn let_wait(
        &mut self,
        entry: &CopyEntry<'_>,
        stat: &Stat,
        sink: &mut Sink<'_>,
        (there, sync): (Option<&Existing>, FileSync),
    ) -> bool {
        let there = match there.map(Existing::in_place) {
            Some(None) => return false,
            there => there.flatten(),
        };
        let Sink::Hidden(file) = sink else { return false };
        let Some(file) = file.park() else { return false };
        entry.directory.expect_one_more();
        self.waiting.push(Waiting {
            directory: Arc::clone(entry.directory),
            from: entry.from.clone(),
            source: entry.source.to_owned(),
            name: entry.name.to_owned(),
            stat: *stat,
            there,
            file,
            sync,
        });
        if self.waiting.len() >= self.run.most_waiting {
            self.name_waiting();
        }
        true
    }

    /// Syncs the files that wait and gives them their names, also in a run that is being stopped: they are whole.
    pub fn name_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let whole = self.run.whole.as_ref().filter(|_| waiting.len() > FEW);
        let is_synced = whole.is_some_and(|whole| whole.sync().is_ok());
        for Waiting { directory, from, source, name, stat, there, file, sync } in waiting {
            let entry =
                CopyEntry { directory: &directory, from: &from, source: &source, name: &name };
            // If something could not be written, each file says whether it was its own.
            let sync = if is_synced { FileSync::Nothing } else { sync };
            if let Err(failure) = self.name_one(&entry, &stat, file, (there.as_ref(), sync)) {
                self.fail(&entry, failure);
            }
            Directory::done(self.run, directory);
        }
    }

    fn name_one(
        &mut self,
        entry: &CopyEntry<'_>,
        stat: &Stat,
        file: Parked,
        (there, sync): (Option<&Existing>, FileSync),
    ) -> Attempt<()> {
        let Some(dir) = entry.directory.open()? else { return Ok(()) };
        let mut sink = Sink::Hidden(file.unpark(dir.as_fd(), entry.name));
        sync.perform(sink.fd(), size(stat))?;
        let name_at = NameAt { dir: dir.as_fd(), name: entry.name };
        match self.publish(entry, stat, (&mut sink, name_at), there) {
            Ok(Published::Named(backup)) => {
                self.tell_removed(entry, there, stat);
                self.count_file(entry, backup.as_deref());
            }
            Ok(Published::Skipped) => {
                self.skip(entry, Skip::Exists);
                self.list_file(entry);
            }
            Err(failure) => {
                drop(sink);
                return self.copy_by_itself(entry, failure);
            }
        }
        Ok(())
    }

    /// Copies a file once more that did not get its name, without waiting: what is to be done about that is known there.
    fn copy_by_itself(&mut self, entry: &CopyEntry<'_>, failure: Failure) -> Attempt<()> {
        if self.is_by_itself {
            return Err(failure);
        }
        self.is_by_itself = true;
        let copied = self.file(entry);
        self.is_by_itself = false;
        copied
    }
}
