//! Advances the cursor of an end and wakes the peer. This is separate from the end itself, because a thread may give
//! back a held message while the consumer sleeps.

use super::memory::SideMemory;
use super::wait::steps::{self, ON_FUTEX, ON_LINK, Sleeper};
use crate::layout::SideWords;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thalweg_sys::{futex, peer};

/// The right to advance the cursor of an end. Only one publisher exists per end.
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

/// Wakes the peer if it sleeps, by the method that `waiting` specifies.
pub(super) fn wake(own: &SideWords, sleeper: &mut Sleeper, waiting: u32, link: impl AsFd) {
    match sleeper.due(waiting, &own.wake.0) {
        ON_FUTEX => {
            // FUTEX_WAKE fails only for invalid addresses, and this word is mapped.
            let _ = futex::wake_one(&own.wake.0);
        }
        ON_LINK => {
            // Errors are ignored. If the queue is full, its messages wake the peer, and if the link is closed, no peer
            // sleeps.
            let _ = peer::send(link, b"!", &[]);
        }
        _ => {}
    }
}
