//! Small files that have come into a folder that is there: many of them wait for one sync before they get their names.

use thalweg_core::atomic_file::{Fsync, Parked};

use super::{
    files::{Wanted, publish},
    job::Job,
};

/// So many of one connection wait at most: enough that the cost of a sync is shared.
const MOST: usize = 64;
/// Fewer are synced one by one: syncfs(2) may have to wait for what other processes wrote.
const FEW: usize = 4;

/// Files of one connection that are whole and wait for their names.
#[derive(Default)]
pub struct Naming {
    waiting: Vec<(Wanted, Parked)>,
}

impl Naming {
    /// Whether files may wait here: in a stage they have their names already.
    pub fn is_for(job: &Job<'_>) -> bool {
        job.manner.fsync != Fsync::Never && job.whole.is_some()
    }

    /// One more, which has its attributes.
    pub fn push(&mut self, wanted: Wanted, file: Parked) {
        self.waiting.push((wanted, file));
    }

    /// Whether no more should wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    /// Syncs the files and gives them their names, also in a run that is being stopped: the next one need not fetch them.
    pub fn finish(&mut self, job: &Job<'_>) {
        let waiting = std::mem::take(&mut self.waiting);
        let whole = job.whole.filter(|_| waiting.len() > FEW);
        let is_synced = whole.is_some_and(|whole| whole.sync().is_ok());
        for (wanted, file) in waiting {
            let file = file.unpark(std::os::fd::AsFd::as_fd(&wanted.folder.fd), &*wanted.name);
            // If something could not be written, each file says whether it was its own.
            match publish(file, wanted.replaces, (!is_synced).then_some(job.manner.fsync)) {
                Ok(()) => job.account.settled(wanted.size, true),
                Err(error) => job.account.missed(&wanted.path, error),
            }
        }
    }
}
