//! What a server serves, and how.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use thalweg_core::{Profile, rate_limit::RateLimit};

use super::{
    accounts::Accounts, addresses::Addresses, digests::Digests, name_cache::NameCache, open::Root,
};
use crate::plans::Policy;

/// The same for all workers.
#[derive(Debug)]
pub struct Site {
    pub root: Root,
    pub hidden: bool,
    pub listing: bool,
    pub precompressed: bool,
    pub metrics: bool,
    /// Each worker has one of its own, until it is woken.
    pub policy: Mutex<Arc<Policy>>,
    /// Of all answers together.
    pub limit: Option<RateLimit>,
    /// Bytes a second, of one connection.
    pub limit_each: Option<u64>,
    pub accounts: Accounts,
    pub addresses: Addresses,
    /// Where hashes of files are told.
    pub digests: Option<Digests>,
    /// The names of directories that are listed.
    pub names: NameCache,
    /// Memory of directories that wait in trees, in bytes.
    pub paths: AtomicU64,
    /// The most of it.
    pub most_paths: u64,
}

impl Site {
    /// How mechanisms are chosen now.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the paths of a tree, which now take `held` bytes. Returns `false` if all trees together take too much.
    pub fn count_paths(&self, counted: &mut u64, held: u64) -> bool {
        let before = std::mem::replace(counted, held);
        if held <= before {
            self.paths.fetch_sub(before - held, Ordering::Relaxed);
            return true;
        }
        let more = held - before;
        self.paths.fetch_add(more, Ordering::Relaxed) + more <= self.most_paths
    }

    /// From now on by what was measured anew.
    pub fn choose_by(&self, profile: Option<Profile>) {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        *policy = Arc::new(Policy { profile, ..Policy::clone(&policy) });
    }
}
