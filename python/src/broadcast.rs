//! The end that sends to several receivers.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use thalweg_channel::{Departure, Error, Link, Listener, Options, Producer, Slow};

use crate::alone::Alone;
use crate::content::Content;
use crate::door::Door;
use crate::error::{closed, raised};
use crate::memory::Pool;

use crate::wait::{SLICE, deadline, patiently};

/// Interval between two checks whether stored messages could be sent.
const AGAIN: Duration = Duration::from_millis(1);

/// The sending end of channels to any number of receivers, made by `broadcast`: each has a ring of its own, and gets what is
/// sent once it is there. Without receivers what is sent goes to nobody.
///
/// One thread at a time may use it; another gets a RuntimeError. Closing it is the goodbye.
#[pyclass(frozen, module = "thalweg")]
pub struct Broadcast {
    inside: Alone<Inside>,
}

struct Inside {
    /// `None` after `close`.
    open: Option<Open>,
    pool: Pool,
    /// Size in bytes of the message that was sent last.
    wanted: usize,
    departed: Vec<(Receiver, Departure)>,
}

struct Open {
    door: Door<Producer>,
    seats: thalweg_channel::Broadcast,
    receivers: BTreeMap<u64, Receiver>,
}

#[derive(Clone, Copy)]
struct Receiver {
    process: u32,
}

impl Broadcast {
    /// Creates the end. With a `backlog` it never waits for slow receivers: up to `backlog` messages are stored for
    /// each, then the oldest is dropped.
    pub fn new(listener: Listener, options: Options, backlog: Option<usize>) -> Self {
        let slow = backlog.map_or(Slow::Wait, |backlog| Slow::DropOldest { backlog });
        let meet =
            |link: Link, options: &Options, until| Producer::open_until(link, options, Some(until));
        let open = Open {
            door: Door::new(listener, options, meet),
            seats: thalweg_channel::Broadcast::new(slow),
            receivers: BTreeMap::new(),
        };
        let pool = Pool::default();
        let inside = Inside { open: Some(open), pool, wanted: 0, departed: Vec::new() };
        Self { inside: Alone::new(inside) }
    }

    fn deliver(&self, py: Python<'_>, content: &Content, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.send(py, content, deadline))
    }
}

impl Inside {
    /// Admits new receivers, and records those that have gone.
    fn look(&mut self, py: Python<'_>) -> PyResult<&mut Open> {
        let open = self.open.as_mut().ok_or_else(closed)?;
        for producer in open.door.arrivals().map_err(raised(py))? {
            let process = producer.peer().pid;
            let number = open.seats.admit(producer);
            open.receivers.insert(number, Receiver { process });
        }
        for departure in open.seats.take_departed() {
            let receiver = open.receivers.remove(&departure.subscriber);
            if let (Some(receiver), false) =
                (receiver, matches!(departure.error, Error::Closed { .. }))
            {
                self.departed.push((receiver, departure));
            }
        }
        Ok(open)
    }

    /// Sends a message to all receivers, or to none if it times out.
    fn send(
        &mut self,
        py: Python<'_>,
        content: &Content,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let len = content.message();
        self.wanted = len;
        let mut room = self.pool.room(len).ok_or_else(|| PyMemoryError::new_err(()))?;
        let (message, write) = (room.bytes(len), content.writer(py));
        py.detach(|| write(&mut *message));
        let seats = &mut self.look(py)?.seats;
        patiently(py, deadline, |until| seats.publish_until(message, Some(until)))?;
        self.look(py).map(drop)
    }
}

#[pymethods]
impl Broadcast {
    /// Sends an array, or anything else with a buffer, as it is now. Without a `backlog` it waits for room at every
    /// receiver; after Timeout nobody has it.
    #[pyo3(signature = (obj, timeout=None))]
    fn send(&self, py: Python<'_>, obj: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        self.deliver(py, &Content::array(obj)?, timeout)
    }

    /// Sends bytes as they are, as `Offer.send_bytes`.
    #[pyo3(signature = (data, timeout=None))]
    fn send_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.deliver(py, &Content::bytes(data)?, timeout)
    }

    /// Sends any object that can be pickled, as `Offer.send_object`.
    #[pyo3(signature = (obj, timeout=None))]
    fn send_object(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.deliver(py, &Content::object(obj)?, timeout)
    }

    /// Waits until as many receivers are there.
    #[pyo3(signature = (receivers=1, timeout=None))]
    fn wait(&self, py: Python<'_>, receivers: usize, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            loop {
                let open = inside.look(py)?;
                // Departures are only detected by a call for each receiver.
                open.seats.push_backlog().map_err(raised(py))?;
                if open.seats.subscribers() >= receivers {
                    return inside.look(py).map(drop);
                }
                if deadline.is_some_and(|at| Instant::now() >= at) {
                    return Err(raised(py)(Error::Timeout));
                }
                let slice = Instant::now() + SLICE;
                let until = deadline.map_or(slice, |deadline| deadline.min(slice));
                py.detach(|| open.door.wait(until)).map_err(raised(py))?;
                py.check_signals()?;
            }
        })
    }

    /// Waits until nothing is kept here any more for receivers that were too slow.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            let seats = &mut inside.look(py)?.seats;
            patiently(py, deadline, |until| {
                while seats.push_backlog()? > 0 {
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

    /// For event loops, after a `send` with `timeout=0` that timed out. True: wait until one of `filenos()` is readable,
    /// then send again. False: send at once.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            let wanted = inside.wanted;
            inside.look(py)?.seats.arm(wanted).map_err(raised(py))
        })
    }

    /// What an event loop polls for reading: the listener, and what tells of each receiver.
    fn filenos(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inside.with(py, |inside| {
            let open = inside.open.as_ref().ok_or_else(closed)?;
            let all = std::iter::once(open.door.descriptor()).chain(open.seats.descriptors());
            Ok(all.map(|descriptor| descriptor.as_raw_fd()).collect())
        })
    }

    /// Whether a receiver is about to be let in, of which no descriptor tells.
    #[getter]
    fn is_meeting(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| Ok(inside.open.as_ref().is_some_and(|o| o.door.is_meeting())))
    }

    /// Says goodbye to all. What is still kept for who was too slow is dropped: `flush` before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut inside) = self.inside.here()? else { return Ok(()) };
        let open = inside.open.take();
        drop(inside);
        py.detach(|| drop(open));
        Ok(())
    }

    /// Receivers that have ended without a goodbye: process, messages that were dropped for it, and what was found.
    fn departed(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64, PyErr)>> {
        self.inside.with(py, |inside| {
            let told = inside.departed.iter().map(|(receiver, departure)| {
                (receiver.process, departure.dropped, raised(py)(departure.error.clone()))
            });
            Ok(told.collect())
        })
    }

    /// Receivers that are there, as far as is known.
    #[getter]
    fn receivers(&self, py: Python<'_>) -> PyResult<usize> {
        self.inside.with(py, |inside| Ok(inside.look(py)?.seats.subscribers()))
    }

    /// Messages sent.
    #[getter]
    fn sent(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside
            .with(py, |inside| Ok(inside.open.as_ref().map_or(0, |open| open.seats.published())))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
