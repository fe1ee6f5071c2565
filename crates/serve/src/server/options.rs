//! Configuration of a server.

use std::{net::SocketAddr, os::fd::OwnedFd, path::PathBuf, time::Duration};

use thalweg_core::{Guarantees, Profile, Request};
use thalweg_sys::user::User;
use thalweg_tree::install::FollowLinks;

use super::AccessLog;
use crate::ByteStream;

/// Default memory limit for data that waits for slow clients, in bytes.
pub const MEMORY: u64 = 64 << 20;

/// Configuration of a server.
#[derive(Debug)]
pub struct ServeOptions {
    /// The directory or file to be served.
    pub root: PathBuf,
    /// Addresses to listen on. Empty: [`ListenAddress::default`], or the next free port.
    pub listen: Vec<ListenAddress>,
    /// Listening sockets passed in by a service manager. If there are any, the default address is not used.
    pub handed: Vec<OwnedFd>,
    /// Connections that exist already. If there are any, the server does not listen, and ends with the last of them.
    pub streams: Vec<ByteStream>,
    /// Number of workers. `None`: one per core.
    pub threads: Option<usize>,
    /// The rule for following symbolic links.
    pub follow: FollowLinks,
    /// `true` if names that start with a dot are served.
    pub hidden: bool,
    /// `true` if directories without an `index.html` are listed.
    pub listing: bool,
    /// `true` if precompressed variants are sent to clients that accept them.
    pub precompressed: bool,
    /// `true` if clients may request the hashes of files.
    pub hash: bool,
    /// The user that the process becomes after it has bound its addresses. Files are opened as that user.
    pub user: Option<User>,
    /// `true` if the counters are served at `/-/metrics`.
    pub metrics: bool,
    /// Guarantees for the body of an answer.
    pub needs: Guarantees,
    /// Rules for the choice of the mechanism.
    pub request: Request,
    /// Measured profile of this machine.
    pub profile: Option<Profile>,
    /// Maximum rate of all answers together, in bytes per second.
    pub limit: Option<u64>,
    /// Maximum rate of one connection, in bytes per second.
    pub limit_each: Option<u64>,
    /// Timeouts for clients.
    pub timeouts: Timeouts,
    /// Maximum number of open connections. `None`: as many as the limit of open files allows.
    pub max_connections: Option<usize>,
    /// Maximum number of open connections per client address. 0: no limit; `None`: three quarters of `max_connections`.
    pub connections_per_address: Option<usize>,
    /// Maximum memory, in bytes, for all clients together: buffers and pipes that wait for slow clients, and directory
    /// listings. Above it, the answers that have waited longest for their clients release their memory.
    pub memory: u64,
    /// Destination of the access log.
    pub log: Option<AccessLog>,
}

impl ServeOptions {
    /// Returns the default configuration for a directory or a file.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            listen: Vec::new(),
            handed: Vec::new(),
            streams: Vec::new(),
            threads: None,
            follow: FollowLinks::default(),
            hidden: false,
            listing: true,
            precompressed: false,
            hash: false,
            user: None,
            metrics: false,
            needs: Guarantees::COPIED,
            request: Request::default(),
            profile: None,
            limit: None,
            limit_each: None,
            timeouts: Timeouts::default(),
            max_connections: None,
            connections_per_address: None,
            memory: MEMORY,
            log: None,
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address of this machine and a port; 0 selects a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000)))
    }
}

/// Timeouts for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time from the first byte of a request to the end of its head.
    pub head: Duration,
    /// Maximum time without a request.
    pub idle: Duration,
    /// Maximum time in which the client reads nothing.
    pub stalled: Duration,
    /// Maximum time to wait for the hash of a file. After it, the answer is sent without the hash.
    pub digest: Duration,
}

impl Timeouts {
    /// No timeouts, for a server of byte streams: the end of a stream ends its connection.
    pub const NONE: Self = Self {
        head: Duration::MAX,
        idle: Duration::MAX,
        stalled: Duration::MAX,
        digest: Duration::MAX,
    };
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(15),
            idle: Duration::from_secs(60),
            stalled: Duration::from_secs(60),
            digest: Duration::from_secs(5),
        }
    }
}
