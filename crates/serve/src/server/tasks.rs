//! Tasks for helper threads, the lanes (classes of tasks) that limit the number of concurrent
//! helpers, and the connections that wait for the tasks.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{fd::AsFd, fs::fstat};
use thalweg_sys::buffer::Buffer;

use super::mailbox::Mailbox;

/// Maximum number of threads per device. If one device hangs, threads remain for the others.
pub const PER_DEVICE: usize = 8;
const SMALL_HASH: u64 = 4 << 20;
const MEDIUM_HASH: u64 = 256 << 20;

/// A class of tasks with a limit on the number of concurrent helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelperLane {
    /// Reads from a device.
    Device(u64),
    /// Examines directory entries on a device.
    List(u64),
    /// Reads a large directory on a device.
    Sort(u64),
    /// Hashes a file.
    Hash(HashSize),
}

/// Size class of a file to be hashed. Small files do not wait for large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashSize {
    Small,
    Medium,
    Large,
}

impl HashSize {
    /// Returns the size class of a file of this many bytes.
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

impl HelperLane {
    /// Returns the lane for examining entries of this directory.
    pub fn list(directory: impl AsFd) -> Self {
        Self::List(fstat(directory).map_or(0, |stat| stat.st_dev))
    }

    /// Returns the lane for reading this directory, which is large.
    pub fn sort(directory: impl AsFd) -> Self {
        Self::Sort(fstat(directory).map_or(0, |stat| stat.st_dev))
    }

    /// Returns the maximum number of concurrent tasks.
    pub fn most(self) -> usize {
        match self {
            Self::Device(_) => PER_DEVICE,
            Self::List(_) | Self::Hash(HashSize::Small) => 2,
            Self::Sort(_) | Self::Hash(HashSize::Medium | HashSize::Large) => 1,
        }
    }
}

/// Resources of a helper thread for its task: the shutdown flag and a reusable buffer.
pub struct HelperResources<'h> {
    pub is_over: &'h AtomicBool,
    pub buffer: &'h mut Buffer,
}

/// The connection that waits for a task.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub token: u64,
    pub mailbox: Arc<Mailbox>,
    /// Address of the client. `None` on a Unix socket.
    pub client: Option<IpAddr>,
}

/// A task, and the connection that waits for it.
pub struct HelperTask {
    pub lane: HelperLane,
    pub work: Box<dyn FnOnce(&mut HelperResources<'_>) + Send>,
    pub waiter: Waiter,
}
