//! How to fetch, whatever it is.

use std::time::Duration;

use thalweg_core::atomic_file::Fsync;

use super::{Answered, Connections, Expected, Extra, Proxies, Trust, Way};

/// How to fetch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to trust, for https.
    pub trust: Trust,
    /// Through whom servers are asked.
    pub proxies: Proxies,
    /// What requests carry.
    pub extra: Extra,
    /// How bodies are moved.
    pub way: Way,
    /// The longest time in which nothing comes.
    pub patience: Duration,
    /// How often to try again when nothing came since the last try.
    pub retries: u32,
    /// Servers that are retried although no connection to them can be made.
    pub answered: Answered,
    /// How many connections bring one file.
    pub connections: Connections,
    /// The hashes that the file must have.
    pub expected: Vec<Expected>,
    /// Read it back from the device, and fail if nobody says what it must be.
    pub verify: bool,
    /// What must be on stable storage.
    pub fsync: Fsync,
}
