//! The end that sends to several subscribers.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::{Duration, Instant};
use thalweg_channel::{Broadcast, Departure, Error, Link, Listener, Options, Producer, Slow};

use crate::alone::OneThread;
use crate::content::{MessageContent, SendsContent, deliver};
use crate::error::raised;
use crate::many::{ManyPeers, OpenPeers};
use crate::memory::RoomPool;
use crate::wait::{deadline, patiently};
use thalweg_core::cadence::CANCEL_CHECK;

/// Interval between attempts to send stored messages.
const AGAIN: Duration = Duration::from_millis(1);

/// The sending end of channels to any number of subscribers, created by `broadcast`. Each subscriber has its own ring, and
/// receives the messages that are sent after it has connected. Without subscribers, messages are discarded.
///
/// One thread at a time may use it; another gets a RuntimeError. Closing it ends the channels.
#[pyclass(frozen, name = "Broadcast", module = "thalweg")]
pub struct PyBroadcast {
    inside: OneThread<BroadcastInner>,
}

struct BroadcastInner {
    many: ManyPeers<Broadcast, Subscriber>,
    pool: RoomPool,
    /// Size in bytes of the message that `send` was last called with.
    wanted: usize,
    departed: Vec<(Subscriber, Departure)>,
}

#[derive(Clone, Copy)]
struct Subscriber {
    process: u32,
}

impl PyBroadcast {
    /// Creates the end. With a `backlog`, it never waits for slow subscribers: it stores up to `backlog` messages for
    /// each, and then drops the oldest.
    pub fn new(listener: Listener, options: Options, backlog: Option<usize>) -> Self {
        let slow = backlog.map_or(Slow::Wait, |backlog| Slow::DropOldest { backlog });
        let meet =
            |link: Link, options: &Options, until| Producer::open_until(link, options, Some(until));
        let many = ManyPeers::new(listener, options, meet, Broadcast::new(slow));
        let pool = RoomPool::default();
        let inside = BroadcastInner { many, pool, wanted: 0, departed: Vec::new() };
        Self { inside: OneThread::new(inside) }
    }
}

impl BroadcastInner {
    /// Admits new subscribers, and records those that have left.
    fn look(&mut self, py: Python<'_>) -> PyResult<&mut OpenPeers<Broadcast, Subscriber>> {
        let open = self.many.open()?;
        open.admit(py, |process| Subscriber { process })?;
        for departure in open.rings.take_departed() {
            let subscriber = open.peers.remove(&departure.subscriber);
            if let (Some(subscriber), false) =
                (subscriber, matches!(departure.error, Error::Closed { .. }))
            {
                self.departed.push((subscriber, departure));
            }
        }
        Ok(open)
    }
}

impl SendsContent for BroadcastInner {
    /// Sends a message to all subscribers, or to none if it times out.
    fn send(
        &mut self,
        py: Python<'_>,
        content: &MessageContent,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let len = content.message();
        self.wanted = len;
        let mut room = self.pool.room(len).ok_or_else(|| PyMemoryError::new_err(()))?;
        let (message, write) = (room.bytes(len), content.writer(py));
        py.detach(|| write(&mut *message));
        let rings = &mut self.look(py)?.rings;
        patiently(py, deadline, |until| rings.publish_until(message, Some(until)))?;
        self.look(py).map(drop)
    }
}

#[pymethods]
impl PyBroadcast {
    /// Sends an array, or another object with a buffer, as it is now. Without a `backlog`, waits until every subscriber
    /// has room. If it raises Timeout, no subscriber has received the message.
    #[pyo3(signature = (obj, timeout=None))]
    fn send(&self, py: Python<'_>, obj: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::array(obj)?, timeout)
    }

    /// Sends bytes unchanged, like `Producer.send_bytes`.
    #[pyo3(signature = (data, timeout=None))]
    fn send_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::bytes(data)?, timeout)
    }

    /// Sends any object that can be pickled, like `Producer.send_object`.
    #[pyo3(signature = (obj, timeout=None))]
    fn send_object(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::object(obj)?, timeout)
    }

    /// Waits until this many subscribers are connected.
    #[pyo3(signature = (subscribers=1, timeout=None))]
    fn wait(&self, py: Python<'_>, subscribers: usize, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            loop {
                let open = inside.look(py)?;
                // This call accesses the ring of each subscriber. Only such an access detects that a subscriber has left.
                open.rings.push_backlog().map_err(raised(py))?;
                if open.rings.subscribers() >= subscribers {
                    return inside.look(py).map(drop);
                }
                if deadline.is_some_and(|at| Instant::now() >= at) {
                    return Err(raised(py)(Error::Timeout));
                }
                let slice = Instant::now() + CANCEL_CHECK;
                let until = deadline.map_or(slice, |deadline| deadline.min(slice));
                py.detach(|| open.door.wait(until)).map_err(raised(py))?;
                py.check_signals()?;
            }
        })
    }

    /// Waits until the stored messages of all slow subscribers are in the rings of these subscribers.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            let rings = &mut inside.look(py)?.rings;
            patiently(py, deadline, |until| {
                while rings.push_backlog()? > 0 {
                    if Instant::now() >= until {
                        return Err(Error::Timeout);
                    }
                    std::thread::sleep(AGAIN);
                }
                Ok(())
            })?;
            inside.look(py).map(drop)
        })
    }

    /// For event loops, after a `send` with `timeout=0` that timed out. Returns True if the caller should wait until one
    /// of `filenos()` is readable, and then send again. Returns False if it can send immediately.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            let wanted = inside.wanted;
            inside.look(py)?.rings.arm(wanted).map_err(raised(py))
        })
    }

    /// The descriptors that an event loop polls for reading: the listener's, then one for each subscriber.
    fn filenos(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inside.with(py, |inside| inside.many.filenos())
    }

    /// True while a subscriber is connecting. No descriptor becomes readable when its handshake ends.
    #[getter]
    fn is_meeting(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| Ok(inside.many.is_meeting()))
    }

    /// Closes the channels to all subscribers. Messages stored for slow subscribers are dropped: call `flush` before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inside.close(py, |inside| inside.many.close())
    }

    /// The subscribers that ended without closing: process, number of messages dropped for it, and the error.
    fn departed(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64, PyErr)>> {
        self.inside.with(py, |inside| {
            let all = inside.departed.iter().map(|(subscriber, departure)| {
                (subscriber.process, departure.dropped, raised(py)(departure.error.clone()))
            });
            Ok(all.collect())
        })
    }

    /// Number of connected subscribers, including those that have left undetected.
    #[getter]
    fn subscribers(&self, py: Python<'_>) -> PyResult<usize> {
        self.inside.with(py, |inside| Ok(inside.look(py)?.rings.subscribers()))
    }

    /// Number of messages sent.
    #[getter]
    fn sent(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside
            .with(py, |inside| Ok(inside.many.get().map_or(0, |open| open.rings.published())))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
