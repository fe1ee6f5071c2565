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
        dest::{conflict::Existing, publish::Sink},
        directory::Directory,
        durable::FileSync,
        leaf::Leaf,
        spot::Spot,
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
    pub fn may_wait(&self, leaf: &Leaf<'_>, stat: &Stat, sync: FileSync) -> bool {
        let has_links = self.run.options.links_names(false, stat.st_nlink);
        sync != FileSync::Nothing
            && self.run.most_waiting > 0
            && leaf.directory.is_synced_whole
            && !leaf.named_by_caller()
            && !self.is_by_itself
            // Others wait to be linked to it.
            && !has_links
    }

    /// Has a file wait; `false` if it cannot.
    pub fn let_wait(
        &mut self,
        leaf: &Leaf<'_>,
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
        leaf.directory.expect_one_more();
        self.waiting.push(Waiting {
            directory: Arc::clone(leaf.directory),
            from: leaf.from.clone(),
            source: leaf.source.to_owned(),
            name: leaf.name.to_owned(),
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
            let leaf = Leaf { directory: &directory, from: &from, source: &source, name: &name };
            // If something could not be written, each file says whether it was its own.
            let sync = if is_synced { FileSync::Nothing } else { sync };
            if let Err(failure) = self.name_one(&leaf, &stat, file, (there.as_ref(), sync)) {
                self.fail(&leaf, failure);
            }
            Directory::done(self.run, directory);
        }
    }

    fn name_one(
        &mut self,
        leaf: &Leaf<'_>,
        stat: &Stat,
        file: Parked,
        (there, sync): (Option<&Existing>, FileSync),
    ) -> Attempt<()> {
        let Some(dir) = leaf.directory.open()? else { return Ok(()) };
        let mut sink = Sink::Hidden(file.unpark(dir.as_fd(), leaf.name));
        sync.perform(sink.fd(), size(stat))?;
        let spot = Spot { dir: dir.as_fd(), name: leaf.name };
        match self.publish(leaf, stat, (&mut sink, spot), there) {
            Ok(Published::Named(backup)) => {
                self.tell_removed(leaf, there, stat);
                self.count_file(leaf, backup.as_deref());
            }
            Ok(Published::Skipped) => {
                self.skip(leaf, Skip::Exists);
                self.list_file(leaf);
            }
            Err(failure) => {
                drop(sink);
                return self.copy_by_itself(leaf, failure);
            }
        }
        Ok(())
    }

    /// Copies a file once more that did not get its name, without waiting: what is to be done about that is known there.
    fn copy_by_itself(&mut self, leaf: &Leaf<'_>, failure: Failure) -> Attempt<()> {
        if self.is_by_itself {
            return Err(failure);
        }
        self.is_by_itself = true;
        let copied = self.file(leaf);
        self.is_by_itself = false;
        copied
    }
}
