//! What a server serves, and how.

use thalweg_core::rate_limit::RateLimit;

use super::{accounts::Accounts, digests::Digests, open::Root, plans::Policy};

/// The same for all workers.
#[derive(Debug)]
pub struct Site {
    pub root: Root,
    pub hidden: bool,
    pub listing: bool,
    pub precompressed: bool,
    pub metrics: bool,
    pub policy: Policy,
    pub limit: Option<RateLimit>,
    pub accounts: Accounts,
    /// Where hashes of files are told.
    pub digests: Option<Digests>,
}
