//! Options for fetching a file or a tree.

use std::{sync::Arc, time::Duration};

use thalweg_core::{atomic_file::Fsync, rate_limit::RateLimit};

use super::{
    Answered, Channels, Connections, Expected, Extra, Proxies, TlsTrust, request::DIGEST_WAIT,
};
use crate::plans::Policy;

/// Settings for moving bodies.
#[derive(Clone, Debug)]
pub struct BodySettings {
    /// Policy for choosing the mechanism.
    pub policy: Policy,
    /// Rate limit in bytes per second, shared by all connections.
    pub limit: Option<Arc<RateLimit>>,
    /// Rate limit of each connection in bytes per second.
    pub limit_each: Option<u64>,
}

/// Options of a fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Certificate authorities that are trusted to sign the certificates of https servers.
    pub trust: TlsTrust,
    /// Streams that replace network connections.
    pub channels: Option<Arc<Channels>>,
    /// Proxies for requests.
    pub proxies: Proxies,
    /// Additional headers of each request.
    pub extra: Extra,
    /// Settings for moving bodies.
    pub way: BodySettings,
    /// Longest time without a byte from the server.
    pub stall: Duration,
    /// Number of retries after the last received byte.
    pub retries: u32,
    /// Servers that are retried even if a connection to them cannot be made.
    pub answered: Answered,
    /// Number of connections for one file.
    pub connections: Connections,
    /// Digests that the file must have.
    pub expected: Vec<Expected>,
    /// `true` to read the file back from the device. Without a digest to compare with, the fetch fails.
    pub verify: bool,
    /// Required durability: the data that must be on stable storage at the end.
    pub fsync: Fsync,
}

impl FetchOptions {
    /// Returns the longest time until the head of a response. A server that must first hash the file sends nothing until
    /// then.
    pub(super) fn head_limit(&self, wants_digest: bool) -> Duration {
        if wants_digest { self.stall.max(Duration::from_secs(DIGEST_WAIT)) } else { self.stall }
    }
}
