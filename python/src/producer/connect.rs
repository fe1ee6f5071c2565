//! Connecting to the consumer and creating the ring.

use pyo3::prelude::*;
use std::mem;
use std::time::{Duration, Instant};
use thalweg_channel::layout::MOST_CAPACITY;
use thalweg_channel::{Error, Link, Listener, Producer};

use super::{AHEAD, LEAST, ProducerInner, ProducerStage};
use crate::error::{closed, raised};
use crate::memory::SharedProducer;
use crate::wait::{PendingHandshake, joined, patiently, rest};

/// Longest time until the other end of a link responds. The time is long, because the program at the other end may
/// import many modules first.
const STARTS: Duration = Duration::from_secs(600);

impl ProducerInner {
    /// Returns the ring. If none exists, waits for the peer and creates a ring for messages of `first` bytes.
    pub fn ring(
        &mut self,
        py: Python<'_>,
        first: usize,
        deadline: Option<Instant>,
    ) -> PyResult<SharedProducer> {
        loop {
            let link = match &mut self.state {
                ProducerStage::Open(ring) => return Ok(ring.clone()),
                ProducerStage::Closed => return Err(closed()),
                ProducerStage::Meeting(..) => {
                    self.end_meeting(py, deadline)?;
                    continue;
                }
                ProducerStage::Listening(listener) => {
                    Some(patiently(py, deadline, |until| {
                        match listener.accept_until(Some(until)) {
                            // The listener has rejected a peer of another user, so this waits for the next one.
                            Err(Error::NotPermitted { .. }) => Err(Error::Timeout),
                            answer => answer,
                        }
                    })?)
                }
                ProducerStage::Seeking(address) => {
                    Some(patiently(py, deadline, |until| joined(address, until))?)
                }
                ProducerStage::Linked(_) => None,
            };
            let (link, before) = match (link, mem::replace(&mut self.state, ProducerStage::Closed))
            {
                (Some(link), before) => (link, before),
                (None, ProducerStage::Linked(link)) => (link, ProducerStage::Closed),
                _ => return Err(closed()),
            };
            self.begin_meeting(py, link, before, first)?;
        }
    }

    /// Starts the handshake over a link. `before` is the state to return to if it fails.
    fn begin_meeting(
        &mut self,
        py: Python<'_>,
        link: Link,
        before: ProducerStage,
        first: usize,
    ) -> PyResult<()> {
        let mut options = self.making.options;
        if !self.making.is_sized {
            // The additional 4096 bytes leave room for frame headers. The library rounds up.
            options.capacity = LEAST.max(first.saturating_mul(AHEAD).saturating_add(4096)) as u64;
            options.capacity = options.capacity.min(MOST_CAPACITY);
        }
        let meet = move |link, until| Producer::open_until(link, &options, Some(until));
        // If several peers may connect, a silent one must not block the others for long. The other end of a single
        // link may belong to a process that has yet to start.
        let patience =
            if matches!(before, ProducerStage::Closed) { STARTS } else { Listener::PATIENCE };
        match PendingHandshake::begin(py, link, patience, meet) {
            Ok(meeting) => {
                self.state = ProducerStage::Meeting(meeting, Box::new(before));
                Ok(())
            }
            Err(error) => {
                self.state = before;
                Err(error)
            }
        }
    }

    /// Waits for the end of the handshake and sets the state that follows it.
    fn end_meeting(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<()> {
        let ProducerStage::Meeting(meeting, before) = &mut self.state else { return Ok(()) };
        let opened = meeting.outcome(py, deadline)?;
        let before = mem::replace(&mut **before, ProducerStage::Closed);
        let is_one_of_many = !matches!(before, ProducerStage::Closed);
        self.state = before;
        match opened {
            Ok(producer) => {
                self.state = ProducerStage::Open(SharedProducer::new(producer));
                Ok(())
            }
            // This process caused the failure, so it would fail with the next peer too.
            Err(error @ (Error::System { .. } | Error::TooLarge { .. })) => Err(raised(py)(error)),
            // The peer is gone or silent, so this waits for the next one.
            Err(_) if is_one_of_many => rest(py, deadline),
            Err(error) => Err(raised(py)(error)),
        }
    }
}
