//! Small files received into an existing directory: many of them share one sync before they are published.

use thalweg_core::atomic_file::{Fsync, Parked};

use super::{
    files::{WantedFile, publish},
    job::TreeJob,
};

/// Largest number of waiting files per connection: enough to share the cost of a sync.
const MOST: usize = 64;
/// Up to this many files are synced one by one: syncfs(2) may have to wait for writes of other processes.
const FEW: usize = 4;

/// Complete files of one connection that are not published yet.
#[derive(Default)]
pub struct Naming {
    waiting: Vec<(WantedFile, Parked)>,
}

impl Naming {
    /// Returns `true` if files should wait here. Files in a staging directory do not wait, because they have their
    /// names.
    pub fn is_for(job: &TreeJob<'_>) -> bool {
        job.install.fsync != Fsync::Never && job.whole.is_some()
    }

    /// Adds a file. Its attributes are already set.
    pub fn push(&mut self, wanted: WantedFile, file: Parked) {
        self.waiting.push((wanted, file));
    }

    /// Returns `true` if the files should be published now.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    /// Syncs and publishes the files, even after an error has stopped the fetch, so that the next run need not fetch
    /// them.
    pub fn finish(&mut self, job: &TreeJob<'_>) {
        let waiting = std::mem::take(&mut self.waiting);
        let whole = job.whole.filter(|_| waiting.len() > FEW);
        let is_synced = whole.is_some_and(|whole| whole.sync().is_ok());
        for (wanted, file) in waiting {
            let file = file.unpark(std::os::fd::AsFd::as_fd(&wanted.directory.fd), &*wanted.name);
            // Without a common sync, each file is synced separately. After a failed one, this shows which files lost
            // bytes.
            match publish(file, &wanted, job.install, (!is_synced).then_some(job.install.fsync)) {
                Ok(()) => job.account.fetched(&wanted),
                Err(error) => job.account.missed(&wanted.path, error),
            }
        }
    }
}
