//! What a server serves, and how.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_core::{Profile, rate_limit::RateLimit};

use super::{accounts::Accounts, digests::Digests, open::Root};
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
    /// Where hashes of files are told.
    pub digests: Option<Digests>,
}

impl Site {
    /// How mechanisms are chosen now.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on by what was measured anew.
    pub fn choose_by(&self, profile: Option<Profile>) {
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        *policy = Arc::new(Policy { profile, ..Policy::clone(&policy) });
    }
}
