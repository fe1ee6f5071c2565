//! Code shared by the ends with several peers: admission, descriptors to poll, and closing.

use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use thalweg_channel::{Broadcast, Consumer, Listener, Mpsc, Options, Producer};

use crate::door::{HandshakeDoor, Meet};
use crate::error::{closed, raised};

/// The rings of one end, with one ring for each peer.
pub trait PeerRings {
    type Ring: Send + 'static;
    /// Adds the ring of a new peer and returns its number.
    fn admit(&mut self, ring: Self::Ring) -> u64;
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;
    /// Returns the process at the other end.
    fn process(ring: &Self::Ring) -> u32;
}

impl PeerRings for Broadcast {
    type Ring = Producer;

    fn admit(&mut self, ring: Producer) -> u64 {
        Self::admit(self, ring)
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        Self::descriptors(self)
    }

    fn process(ring: &Producer) -> u32 {
        ring.peer().pid
    }
}

impl PeerRings for Mpsc {
    type Ring = Consumer;

    fn admit(&mut self, ring: Consumer) -> u64 {
        Self::admit(self, ring)
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        Self::descriptors(self)
    }

    fn process(ring: &Consumer) -> u32 {
        ring.peer().pid
    }
}

/// An end with several peers. `P` is the type of the record that the end keeps for each peer.
pub struct ManyPeers<R: PeerRings, P> {
    /// `None` after `close`.
    open: Option<OpenPeers<R, P>>,
}

/// State until the end is closed.
pub struct OpenPeers<R: PeerRings, P> {
    pub door: HandshakeDoor<R::Ring>,
    pub rings: R,
    pub peers: BTreeMap<u64, P>,
}

impl<R: PeerRings, P> ManyPeers<R, P> {
    pub fn new(listener: Listener, options: Options, meet: Meet<R::Ring>, rings: R) -> Self {
        let door = HandshakeDoor::new(listener, options, meet);
        Self { open: Some(OpenPeers { door, rings, peers: BTreeMap::new() }) }
    }

    /// Returns the state, or the exception for a closed end.
    pub fn open(&mut self) -> PyResult<&mut OpenPeers<R, P>> {
        self.open.as_mut().ok_or_else(closed)
    }

    /// Returns the state; `None` after `close`.
    pub fn get(&self) -> Option<&OpenPeers<R, P>> {
        self.open.as_ref()
    }

    /// Returns the descriptors to poll for reading: the listener's first, then one for each peer.
    pub fn filenos(&self) -> PyResult<Vec<i32>> {
        let open = self.open.as_ref().ok_or_else(closed)?;
        let all = std::iter::once(open.door.descriptor()).chain(open.rings.descriptors());
        Ok(all.map(|descriptor| descriptor.as_raw_fd()).collect())
    }

    /// Returns `true` while a handshake is in progress.
    pub fn is_meeting(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.door.is_meeting())
    }

    /// Closes the end. The caller drops the result without the interpreter lock.
    pub fn close(&mut self) -> Option<OpenPeers<R, P>> {
        self.open.take()
    }
}

impl<R: PeerRings, P> OpenPeers<R, P> {
    /// Admits the peers after their handshake. `record` creates the record of a peer from its
    /// process id.
    pub fn admit(&mut self, py: Python<'_>, record: impl Fn(u32) -> P) -> PyResult<()> {
        for ring in self.door.arrivals().map_err(raised(py))? {
            let process = R::process(&ring);
            let number = self.rings.admit(ring);
            self.peers.insert(number, record(process));
        }
        Ok(())
    }
}
