//! Connecting to the producer and opening its ring.

use pyo3::prelude::*;
use std::mem;
use std::time::Instant;
use thalweg_channel::{Address, Error, Link, Listener};
use thalweg_sys::{Errno, io};

use super::{ConsumerInner, ConsumerStage};
use crate::error::{closed, raised};
use crate::source::ReceiveSource;
use crate::wait::{PendingHandshake, joined, patiently, rest};

impl ConsumerInner {
    /// Returns the ring. If necessary, waits for a sender, connects to it and opens its ring.
    pub fn ring(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
    ) -> PyResult<&mut ReceiveSource> {
        let (options, subscribes) = (self.options, self.subscribes);
        loop {
            match &mut self.state {
                ConsumerStage::Open(_) => break,
                ConsumerStage::Closed => return Err(closed()),
                // The sender begins the handshake when it has a message, possibly long after the
                // connection.
                ConsumerStage::Linked(link) => {
                    patiently(py, deadline, |until| speaks(link, until))?
                }
                ConsumerStage::Seeking(address, link) => {
                    if link.is_none() {
                        *link = Some(patiently(py, deadline, |until| joined(address, until))?);
                    }
                    let link = link.as_ref().ok_or_else(closed)?;
                    patiently(py, deadline, |until| speaks(link, until))?;
                }
                ConsumerStage::Meeting(meeting, again) => {
                    let opened = meeting.outcome(py, deadline)?;
                    let again = again.take();
                    self.met(opened, again).map_err(raised(py))?;
                    if matches!(self.state, ConsumerStage::Seeking(..)) {
                        rest(py, deadline)?;
                    }
                    continue;
                }
            }
            let (link, again) = match mem::replace(&mut self.state, ConsumerStage::Closed) {
                ConsumerStage::Linked(link) => (link, None),
                ConsumerStage::Seeking(address, Some(link)) => (link, Some(address)),
                _ => return Err(closed()),
            };
            let meet = move |link, until| ReceiveSource::open(link, &options, subscribes, until);
            match PendingHandshake::begin(py, link, Listener::PATIENCE, meet) {
                Ok(meeting) => self.state = ConsumerStage::Meeting(meeting, again),
                Err(error) => {
                    self.state =
                        again.map_or(ConsumerStage::Closed, |at| ConsumerStage::Seeking(at, None));
                    return Err(error);
                }
            }
        }
        match &mut self.state {
            ConsumerStage::Open(source) => Ok(source),
            _ => Err(closed()),
        }
    }

    /// Sets the state after a handshake.
    fn met(
        &mut self,
        opened: Result<ReceiveSource, Error>,
        again: Option<Address>,
    ) -> Result<(), Error> {
        let (state, met) = match (opened, again) {
            (Ok(source), _) => (ConsumerStage::Open(source), Ok(())),
            // The sender has gone, or already has a receiver. Another process may offer a channel
            // under the name.
            (
                Err(Error::Closed { .. } | Error::PeerDied { .. } | Error::Timeout),
                Some(address),
            ) => (ConsumerStage::Seeking(address, None), Ok(())),
            (Err(error), Some(address)) => (ConsumerStage::Seeking(address, None), Err(error)),
            (Err(error), None) => (ConsumerStage::Closed, Err(error)),
        };
        self.state = state;
        met
    }
}

/// Waits until the peer has sent something, or is gone.
fn speaks(link: &Link, until: Instant) -> Result<(), Error> {
    let left = until.saturating_duration_since(Instant::now());
    match io::wait_readable(link, Some(left)) {
        Ok(true) => Ok(()),
        Ok(false) | Err(Errno::INTR) => Err(Error::Timeout),
        Err(errno) => Err(Error::System { call: "poll", errno }),
    }
}
