//! Configuration and state that all workers share.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use thalweg_core::{Profile, Request, rate_limit::RateLimit};

use super::{
    accounts::Accounts, addresses::Addresses, digests::Digests, name_cache::NameCache,
    open::ServedRoot, options::ServeOptions, stream_report::StreamReports,
};
use crate::plans::Policy;

/// Configuration and state that all workers share.
#[derive(Debug)]
pub struct ServedSite {
    pub root: ServedRoot,
    pub hidden: bool,
    pub listing: bool,
    pub precompressed: bool,
    pub metrics: bool,
    /// `true` if the only clients are at the other ends of byte streams. Such clients are thalweg, and may use the
    /// options of lists.
    pub is_stream: bool,
    pub stream_reports: StreamReports,
    /// Rules for choosing mechanisms. Each worker caches them and reloads them when it is woken.
    pub policy: Mutex<Arc<Policy>>,
    /// Rate limit of all answers together.
    pub limit: Option<RateLimit>,
    /// Rate limit of one connection, in bytes per second.
    pub limit_each: Option<u64>,
    pub accounts: Accounts,
    pub addresses: Addresses,
    /// The hash cache. `None`: hashes are not offered.
    pub digests: Option<Digests>,
    /// The cache of directory listings.
    pub names: NameCache,
    /// Memory of queued directories of all tree walks, in bytes.
    pub paths: AtomicU64,
    /// The limit for `paths`.
    pub most_paths: u64,
    /// Maximum number of connections.
    pub most: usize,
}

/// A server is crowded if it has more than one of this many of its maximum number of connections.
const CROWD: usize = 16;

/// Minimum memory, in bytes, for queued directories of tree walks, regardless of the budget.
const LEAST_PATHS: u64 = 256 << 10;

impl ServedSite {
    /// Creates the state of a server of at most `most` connections. Takes the profile out of the options.
    pub fn new(root: ServedRoot, options: &mut ServeOptions, most: usize) -> Self {
        let request = Request { stepwise: true, ..options.request.clone() };
        let (needs, profile) = (options.needs, options.profile.take());
        Self {
            root,
            hidden: options.hidden,
            listing: options.listing,
            precompressed: options.precompressed,
            metrics: options.metrics,
            is_stream: !options.streams.is_empty(),
            stream_reports: StreamReports::default(),
            policy: Mutex::new(Arc::new(Policy { request, needs, profile })),
            limit: options.limit.map(RateLimit::new),
            limit_each: options.limit_each,
            accounts: Accounts::default(),
            addresses: Addresses::new(options.connections_per_address, most),
            digests: options.hash.then(Digests::default),
            names: NameCache::new(options.memory / 8 * 5, options.hidden),
            paths: AtomicU64::new(0),
            most_paths: (options.memory / 4).max(LEAST_PATHS),
            most,
        }
    }

    /// Returns `true` if connections should open few files, because there are many of them.
    pub fn is_crowded(&self) -> bool {
        self.accounts.connections.load(Ordering::Relaxed) > self.most / CROWD
    }

    /// Returns the current rules for choosing mechanisms.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the memory of one tree walk from `counted` to `held` bytes. Returns `false` if all walks together exceed
    /// the limit.
    pub fn count_paths(&self, counted: &mut u64, held: u64) -> bool {
        let before = std::mem::replace(counted, held);
        if held <= before {
            self.paths.fetch_sub(before - held, Ordering::Relaxed);
            return true;
        }
        let more = held - before;
        self.paths.fetch_add(more, Ordering::Relaxed) + more <= self.most_paths
    }

    /// Chooses mechanisms by a new profile from now on.
    pub fn choose_by(&self, profile: Option<Profile>) {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        *policy = Arc::new(Policy { profile, ..Policy::clone(&policy) });
    }
}
