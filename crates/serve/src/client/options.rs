//! Options for fetching a file or a tree.

use std::time::Duration;

use thalweg_core::atomic_file::Fsync;

use super::{Answered, BodySettings, Connections, Expected, Extra, Proxies, TlsTrust};

/// Options of a fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Certificates that https servers must be signed with.
    pub trust: TlsTrust,
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
    /// Servers that are retried although no connection to them can be made.
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
