//! What a server is told before it starts.

use std::{net::SocketAddr, os::fd::OwnedFd, path::PathBuf, time::Duration};

use thalweg_core::{Guarantees, Profile, Request};
use thalweg_sys::user::User;

use super::{Follow, Log};

/// What waits for slow clients may hold as much, unless something else is said.
pub const MEMORY: u64 = 64 << 20;

/// What is served, where, and how.
#[derive(Debug)]
pub struct Options {
    /// A folder, or a file.
    pub root: PathBuf,
    /// Where to listen; none is the address of [`Address::default`], or the next port that is free.
    pub listen: Vec<Address>,
    /// Sockets that listen already, as a service manager hands them over; then the usual address is not
    /// listened at.
    pub handed: Vec<OwnedFd>,
    /// How many workers; none is one per processor.
    pub threads: Option<usize>,
    /// Which symbolic links lead somewhere.
    pub follow: Follow,
    /// Names that begin with a dot are served too.
    pub hidden: bool,
    /// Folders without an `index.html` show what is in them.
    pub listing: bool,
    /// Siblings that are compressed already go to clients that take them.
    pub precompressed: bool,
    /// Hashes of files are told to who asks for them.
    pub hash: bool,
    /// Who to be once the addresses are listened at: files are opened as that user, by the whole process.
    pub user: Option<User>,
    /// The counts are shown at `/-/metrics`.
    pub metrics: bool,
    /// What must hold of a body that was sent.
    pub needs: Guarantees,
    /// How to choose the mechanism.
    pub request: Request,
    /// What was measured here.
    pub profile: Option<Profile>,
    /// The most bytes a second, of all answers together.
    pub limit: Option<u64>,
    /// The most bytes a second of one connection.
    pub limit_each: Option<u64>,
    /// How long to be patient.
    pub timeouts: Timeouts,
    /// The most connections at a time; none is as many as there are descriptors for.
    pub max_connections: Option<usize>,
    /// The most connections of one client address at a time. 0: no limit; `None`: three quarters of
    /// `max_connections`.
    pub connections_per_address: Option<usize>,
    /// The most memory that clients may cost, all together: buffers and pipes that wait for slow clients, and the names
    /// of directories that are listed. Above it, the clients that have waited longest give theirs back.
    pub memory: u64,
    /// Where requests are told.
    pub log: Option<Log>,
}

impl Options {
    /// A folder or a file with all that is not said otherwise.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            listen: Vec::new(),
            handed: Vec::new(),
            threads: None,
            follow: Follow::default(),
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

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address of this machine, and a port; 0 for one that is free.
    Tcp(SocketAddr),
    /// A unix socket, by its name.
    Unix(PathBuf),
}

impl Default for Address {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000)))
    }
}

/// How long to be patient with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// Without a request.
    pub idle: Duration,
    /// With nothing taken of what is sent.
    pub stalled: Duration,
    /// For the hash of a file; then it is answered without one.
    pub digest: Duration,
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
