//! What a mechanism is: one way for a buffer to get from one process's memory into another's.

use super::control::{Control, Note};
use super::memory::{Lent, Memory};
use crate::shared::stop::Stop;
use rustix::fd::OwnedFd;
use std::fmt;
use thalweg_core::{Info, Tuning, Unfit};

/// One way to move a buffer between two processes. Add one by writing a file in `mechanisms/` and a
/// line in its list.
pub trait Mechanism: Sync {
    /// Static facts, the same in the manual, the command line and the studies.
    fn info(&self) -> &'static Info;

    /// Tries the real calls on something tiny, in this process alone. Whether they work between
    /// two certain processes shows when the mechanism is agreed upon.
    fn probe(&self) -> Result<(), Unfit>;

    /// Whether both processes take the page faults of a destination that is new, if buffers have this
    /// size.
    fn shares_faults(&self, size: Option<u64>) -> bool {
        let _ = size;
        false
    }

    /// Whether a loan that was sent is the receiver's for good: the next one is new memory, which the
    /// sender pays for when it writes there.
    fn keeps_loans(&self) -> bool {
        false
    }

    /// The sender's end: makes what both will share.
    #[doc(hidden)]
    fn offer(&self, tuning: &Tuning, ends: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit>;

    /// The receiver's end, from what the sender handed over. The peer may have handed over
    /// anything: what is used is checked.
    #[doc(hidden)]
    fn accept(
        &self,
        tuning: &Tuning,
        parcel: Parcel,
        ends: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit>;
}

impl fmt::Debug for dyn Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

/// What the ends know of each other when a mechanism is set up.
#[doc(hidden)]
#[derive(Debug)]
pub struct Ends {
    /// The peer runs for the same user, and the caller trusts it with this process's memory.
    pub trusted: Result<(), Unfit>,
    /// The two can wait for each other on shared words; else why not.
    pub shares: Result<(), Unfit>,
    /// The peer's process number, and its pidfd by which its life is known.
    pub pid: i32,
    /// Where the peer keeps a word of its own choosing, and the word: a process that reads the one from
    /// the other process has the right process.
    pub token: (u64, u64),
    /// Where ours is.
    pub own_token: &'static Token,
}

/// A word at a known place.
pub(crate) type Token = std::sync::atomic::AtomicU64;

/// What is handed over when a mechanism is set up.
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

    /// The one descriptor that was promised.
    pub(crate) fn fd(&mut self) -> Result<OwnedFd, Unfit> {
        self.fds.pop().ok_or_else(|| Unfit::because("the peer handed over no descriptor"))
    }
}

/// The sender's end of a mechanism in use.
#[doc(hidden)]
pub trait Outgoing: Send {
    /// The receiver is ready, and hands something back.
    fn agreed(&mut self, parcel: Parcel, ends: &Ends) -> Result<(), Unfit> {
        let _ = (parcel, ends);
        Ok(())
    }

    /// Sends a buffer that is not empty; returns when all of it has arrived.
    #[allow(private_interfaces)]
    fn send(&mut self, bytes: &[u8], control: &mut Control) -> Result<(), Stop>;

    /// Memory that this mechanism can send without copying it first; `None` if it has no such
    /// thing.
    #[allow(private_interfaces)]
    fn lend(&mut self, len: usize) -> Option<Result<Lent, Unfit>> {
        let _ = len;
        None
    }

    /// Sends what was lent. The memory comes back, unless it is the receiver's now; after a failure
    /// it always does, for another mechanism.
    #[allow(private_interfaces)]
    fn send_lent(&mut self, lent: Lent, control: &mut Control) -> (Option<Lent>, Result<(), Stop>) {
        let outcome = self.send(lent.bytes(), control);
        (Some(lent), outcome)
    }
}

/// A buffer that did not arrive whole.
#[doc(hidden)]
#[derive(Debug)]
pub struct Broken {
    /// Bytes from the start that are true.
    pub(crate) delivered: u64,
    pub(crate) stop: Stop,
}

impl From<Stop> for Broken {
    fn from(stop: Stop) -> Self {
        Self { delivered: 0, stop }
    }
}

/// The receiver's end of a mechanism in use.
#[doc(hidden)]
pub trait Incoming: Send {
    /// Fills `into` with the buffer that `begin` announced, which has its length and is not empty,
    /// up to where the sender can be told that it is done.
    #[allow(private_interfaces)]
    fn receive(
        &mut self,
        begin: Note,
        into: &mut [u8],
        control: &mut Control,
    ) -> Result<(), Broken>;

    /// The buffer as memory of its own, for mechanisms that can do better than to fill fresh
    /// memory.
    #[allow(private_interfaces)]
    fn receive_as_memory(
        &mut self,
        begin: Note,
        control: &mut Control,
    ) -> Option<Result<Memory, Broken>> {
        let _ = (begin, control);
        None
    }
}
