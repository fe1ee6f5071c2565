//! Tasks for helpers, their lanes, and the connections that wait for them.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{fd::AsFd, fs::fstat};
use thalweg_sys::buffer::Buffer;

use super::mailbox::Mailbox;

/// Threads on one device at the most, so that one that hangs leaves some to the others.
pub const PER_DEVICE: usize = 8;
const SMALL_HASH: u64 = 4 << 20;
const MEDIUM_HASH: u64 = 256 << 20;

/// A kind of task with a limit of how many helpers may do it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// To read from a device.
    Device(u64),
    /// To look at entries of directories of a device.
    List(u64),
    /// To read a large directory of a device.
    Sort(u64),
    /// To hash a file.
    Hash(HashSize),
}

/// The size of a file that is hashed: small files do not wait for large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashSize {
    Small,
    Medium,
    Large,
}

impl HashSize {
    /// The class of a file of this many bytes.
    pub fn of(bytes: u64) -> Self {
        if bytes <= SMALL_HASH {
            Self::Small
        } else if bytes <= MEDIUM_HASH {
            Self::Medium
        } else {
            Self::Large
        }
    }
}

impl Lane {
    /// To look at entries of this directory.
    pub fn list(directory: impl AsFd) -> Self {
        Self::List(fstat(directory).map_or(0, |stat| stat.st_dev))
    }

    /// To read this directory, which is large.
    pub fn sort(directory: impl AsFd) -> Self {
        Self::Sort(fstat(directory).map_or(0, |stat| stat.st_dev))
    }

    /// Tasks of it that may be done at a time.
    pub fn most(self) -> usize {
        match self {
            Self::Device(_) => PER_DEVICE,
            Self::List(_) | Self::Hash(HashSize::Small) => 2,
            Self::Sort(_) | Self::Hash(HashSize::Medium | HashSize::Large) => 1,
        }
    }
}

/// The end of the server, for work that looks at it, and a buffer that the thread keeps.
pub struct Hand<'h> {
    pub is_over: &'h AtomicBool,
    pub buffer: &'h mut Buffer,
}

/// The connection that waits for a task.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub token: u64,
    pub mailbox: Arc<Mailbox>,
    /// The address of its client; `None` at a unix socket.
    pub client: Option<IpAddr>,
}

/// A task, and the connection that waits for it.
pub struct Task {
    pub lane: Lane,
    pub work: Box<dyn FnOnce(&mut Hand<'_>) + Send>,
    pub waiter: Waiter,
}
