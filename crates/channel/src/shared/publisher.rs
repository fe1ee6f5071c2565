//! Advances a cursor and wakes the peer, independently of the end that waits: a held message may be
//! given back while its consumer sleeps.

use super::memory::SideMemory;
use super::wait::steps::{self, ON_FUTEX, ON_LINK, Sleeper};
use crate::layout::SideWords;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thalweg_sys::{futex, peer};

/// The right to advance the cursor of an end. Only one exists at a time.
#[derive(Debug)]
pub(crate) struct Publisher {
    own: SideMemory,
    peer: SideMemory,
    socket: Arc<OwnedFd>,
    sleeper: Sleeper,
}

impl Publisher {
    pub(super) fn new(
        own: SideMemory,
        peer: SideMemory,
        socket: Arc<OwnedFd>,
        sleeper: Sleeper,
    ) -> Self {
        Self { own, peer, socket, sleeper }
    }

    /// Publishes like [`ChannelEnd::publish`](super::end::ChannelEnd::publish). Must not be called in a forked child.
    pub(crate) fn publish(&mut self, to: u64) {
        let own = self.own.words();
        let waiting = steps::publish(&own.cursor.0, to, &self.peer.words().waiting.0);
        if waiting != steps::AWAKE {
            wake(own, &mut self.sleeper, waiting, &*self.socket);
        }
    }
}

/// Wakes the peer if it sleeps, by the method that it announced.
pub(super) fn wake(own: &SideWords, sleeper: &mut Sleeper, waiting: u32, link: impl AsFd) {
    match sleeper.due(waiting, &own.wake.0) {
        ON_FUTEX => {
            // FUTEX_WAKE fails for invalid addresses only, and this one is mapped.
            let _ = futex::wake_one(&own.wake.0);
        }
        ON_LINK => {
            // Errors are ignored: a full queue already wakes the peer, and a closed link has no sleeper.
            let _ = peer::send(link, b"!", &[]);
        }
        _ => {}
    }
}
