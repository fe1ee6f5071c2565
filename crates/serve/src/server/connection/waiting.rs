//! A connection that waits for its client: its memory, and whether the client reads.

use std::time::Instant;

use thalweg_sys::net;

use super::{Answering, ConnectionPhase, ServeConnection, account};
use crate::server::{sending::PARKED, tools::Tools};

impl ServeConnection {
    /// Releases the memory of an answer that waits for its client.
    pub fn park(&mut self, tools: &Tools) {
        self.input.shrink();
        if let ConnectionPhase::Answering(answering) = &mut self.phase {
            let Answering { sending, mechanism, notes, .. } = &mut **answering;
            sending.park(&mut |report| account(&tools.site, mechanism, notes, report));
        }
    }

    /// Returns `true` if a parked connection still holds memory.
    pub fn is_stuck(&self) -> bool {
        match &self.phase {
            ConnectionPhase::Answering(answering) => answering.sending.is_stuck(),
            ConnectionPhase::Waiting => self.input.is_incomplete() && self.input.held() > PARKED,
            ConnectionPhase::Parting => false,
        }
    }

    /// Returns the memory, in bytes, of a connection that waits for its client: its answer and received requests.
    pub fn held(&self) -> u64 {
        match &self.phase {
            ConnectionPhase::Answering(answering) if !self.writable => {
                answering.sending.held() + self.input.held()
            }
            ConnectionPhase::Waiting if self.input.is_incomplete() => self.input.held(),
            _ => 0,
        }
    }

    /// Records how much the client has not read, unless that was done since the socket accepted bytes.
    pub(super) fn note_unread(&mut self) {
        if self.unread.is_none() {
            self.unread = net::unread(&*self.ends.socket).ok();
        }
    }

    /// Returns `true` if the client has read since the answer began to wait for it, and restarts its timeout. epoll does
    /// not report a socket as writable before a third of its send buffer is free.
    pub(super) fn has_read_meanwhile(&mut self) -> bool {
        let ConnectionPhase::Answering(_) = self.phase else { return false };
        let Ok(now) = net::unread(&*self.ends.socket) else { return false };
        let has_read = self.unread.is_some_and(|before| now < before);
        if has_read {
            (self.since, self.unread) = (Instant::now(), Some(now));
        }
        has_read
    }
}
