//! The traits of a mechanism, which moves a buffer from the memory of one process to that of another.

use super::control::{BulkControl, Note};
use super::memory::{LentRegion, MappedBytes};
use crate::shared::stop::WaitStop;
use rustix::fd::OwnedFd;
use std::fmt;
use thalweg_core::{Info, Tuning, Unfit};

/// A mechanism that moves buffers between two processes. To add one, write a file in `mechanisms/` and
/// add a line to the list in `mechanisms/mod.rs`.
pub trait Mechanism: Sync {
    /// Returns the mechanism's properties, for the manual, the command line and the studies.
    fn info(&self) -> &'static Info;

    /// Tries the system calls with a tiny buffer, in this process alone. Only the negotiation shows if they also work
    /// between two processes.
    fn probe(&self) -> Result<(), Unfit>;

    /// Returns `true` if both processes write to the destination, so that each process takes a part of the page faults
    /// of a new destination. `size` is the number of bytes per buffer, if known.
    fn shares_faults(&self, size: Option<u64>) -> bool {
        let _ = size;
        false
    }

    /// Creates the sender's end, and the parcel with everything that the receiver needs for its end.
    #[doc(hidden)]
    fn offer(&self, tuning: &Tuning, ends: &TransferEnds) -> OfferResult;

    /// Creates the receiver's end from the sender's parcel. Must check all values in the parcel, because the peer may
    /// have sent anything.
    #[doc(hidden)]
    fn accept(&self, tuning: &Tuning, parcel: Parcel, ends: &TransferEnds) -> AcceptResult;
}

/// The sender's end, and the parcel for the receiver.
#[doc(hidden)]
pub type OfferResult = Result<(Box<dyn Outgoing>, Parcel), Unfit>;

/// The receiver's end, and the parcel for the sender.
#[doc(hidden)]
pub type AcceptResult = Result<(Box<dyn Incoming>, Parcel), Unfit>;

/// The outcome of receiving one buffer.
#[doc(hidden)]
pub type FillResult = Result<(), Broken>;

/// The memory that can be used again, and the outcome of sending it.
pub(crate) type LentBack = (Option<LentRegion>, Result<(), WaitStop>);

impl fmt::Debug for dyn Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// Facts about both ends that a mechanism needs for its setup.
#[doc(hidden)]
#[derive(Debug)]
pub struct TransferEnds {
    /// `Ok` if the peer belongs to this user and both sides allow access to their memory; otherwise the
    /// reason.
    pub trusted: Result<(), Unfit>,
    /// `Ok` if both ends can wait for each other on shared words; otherwise the reason.
    pub shares: Result<(), Unfit>,
    /// Process id of the peer.
    pub pid: i32,
    /// Address and value of a random word in the peer's memory. A process whose memory contains this value at this
    /// address is the peer.
    pub token: (u64, u64),
    /// The word of this process that the peer looks for.
    pub own_token: &'static PeerToken,
}

/// A random word at a fixed address that identifies a process.
pub(crate) type PeerToken = std::sync::atomic::AtomicU64;

/// Data passed to the peer when a mechanism is set up.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Parcel {
    pub(crate) words: Vec<u64>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Parcel {
    pub(crate) fn of(words: &[u64], fds: Vec<OwnedFd>) -> Self {
        Self { words: words.to_vec(), fds }
    }

    pub(crate) fn word(&self, n: usize) -> u64 {
        self.words.get(n).copied().unwrap_or(0)
    }

    /// Returns the single descriptor that the peer has to send.
    pub(crate) fn fd(&mut self) -> Result<OwnedFd, Unfit> {
        self.fds.pop().ok_or_else(|| Unfit::because("the peer passed no file descriptor"))
    }
}

/// The sender's end of a mechanism in use.
#[doc(hidden)]
pub trait Outgoing: Send {
    /// Processes the receiver's parcel. The receiver is then ready for the first buffer.
    fn agreed(&mut self, parcel: Parcel, ends: &TransferEnds) -> Result<(), Unfit> {
        let _ = (parcel, ends);
        Ok(())
    }

    /// Sends a non-empty buffer. Returns after all of it has arrived.
    #[allow(private_interfaces)]
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop>;

    /// Allocates memory that this mechanism can send without a copy. Returns `None` if the mechanism has no such
    /// memory.
    #[allow(private_interfaces)]
    fn lend(&mut self, len: usize) -> Option<Result<LentRegion, Unfit>> {
        let _ = len;
        None
    }

    /// Sends lent memory. Returns the memory, unless the receiver keeps it. After a failure, returns the memory if
    /// possible, so that another mechanism can send it.
    #[allow(private_interfaces)]
    fn send_lent(&mut self, lent: LentRegion, control: &mut BulkControl) -> LentBack {
        let outcome = self.send(lent.bytes(), control);
        (Some(lent), outcome)
    }
}

/// A buffer that did not arrive completely.
#[doc(hidden)]
#[derive(Debug)]
pub struct Broken {
    /// Number of bytes that are valid, from the start of the buffer.
    pub(crate) delivered: u64,
    pub(crate) stop: WaitStop,
}

impl From<WaitStop> for Broken {
    fn from(stop: WaitStop) -> Self {
        Self { delivered: 0, stop }
    }
}

/// The receiver's end of a mechanism in use.
#[doc(hidden)]
pub trait Incoming: Send {
    /// Fills `into` with the buffer that `begin` announced. `into` has the length of that buffer and is not empty.
    /// Afterwards the caller confirms the buffer to the sender.
    #[allow(private_interfaces)]
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult;

    /// Receives the buffer as new memory. Returns `None` if the mechanism can only fill existing memory.
    #[allow(private_interfaces)]
    fn receive_as_memory(
        &mut self,
        begin: Note,
        control: &mut BulkControl,
    ) -> Option<Result<MappedBytes, Broken>> {
        let _ = (begin, control);
        None
    }
}
