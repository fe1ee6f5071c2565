//! Small files received into an existing directory: many of them share one sync before they are published.

use thalweg_core::atomic_file::{Fsync, Parked};
use thalweg_tree::install::WholeSync;

use super::{
    files::{WantedFile, publish},
    job::TreeJob,
};
use crate::client::FetchError;

/// Largest number of waiting files per connection: enough to share the cost of a sync.
const MOST: usize = 64;

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
        let is_synced = WholeSync::sync_batch(job.whole, waiting.len());
        for (wanted, file) in waiting {
            let file = file.unpark(std::os::fd::AsFd::as_fd(&wanted.directory.fd), &*wanted.name);
            let fsync = |is_synced: bool| if is_synced { Fsync::Never } else { job.install.fsync };
            let published = is_synced
                .map(fsync)
                .map_err(FetchError::from)
                .and_then(|fsync| publish(file, &wanted, job.install, fsync, job.whole));
            match published {
                Ok(()) => job.account.fetched(&wanted),
                Err(error) => job.account.missed(&wanted.path, error),
            }
        }
    }
}
