//! The end that receives from several senders.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use thalweg_channel::{Arrival, Consumer, Error, Listener, Mpsc, Options, Sample};

use crate::alone::Alone;
use crate::door::Door;
use crate::error::{closed, raised};
use crate::long::{Long, Refused};

use crate::read::{Come, Reading, Unread};
use crate::shown::{Shown, ending};
use crate::take::{Manner, may_unpickle, refused, unread};
use crate::wait::{SLICE, deadline};

/// Longest wait while a handshake is in progress.
const MEETING: Duration = Duration::from_millis(1);

/// The receiving end of channels from any number of senders, made by `gather`: each has a ring of its own, and their
/// messages come in turn. Iterating over it receives until as many senders have gone as were said.
///
/// One thread at a time may use it; another gets a RuntimeError. What was received lives on after it is closed.
#[pyclass(frozen, module = "thalweg")]
pub struct Gather {
    inside: Alone<Inside>,
    shown: Shown,
}

struct Inside {
    /// `None` after `close`.
    open: Option<Open>,
    reading: Reading,
    /// Number of senders after which iteration ends.
    expected: Option<usize>,
    gone: usize,
    received: u64,
    departed: Vec<(u32, u64, Error)>,
    /// Process that sent the last message.
    last: Option<u32>,
}

struct Open {
    door: Door<Consumer>,
    many: Mpsc,
    senders: BTreeMap<u64, Sender>,
}

struct Sender {
    process: u32,
    received: u64,
    long: Long,
}

/// The result of reading a message, or the reason why it was left.
type Made<T> = Result<T, Unread>;
type Arrived<'a> = Come<'a, Sample<'a>>;

impl Gather {
    pub fn new(
        py: Python<'_>,
        listener: Listener,
        options: Options,
        (manner, expected): (Manner, Option<usize>),
    ) -> PyResult<Self> {
        let meet =
            |link, options: &Options, until| Consumer::open_until(link, options, Some(until));
        let open = Open {
            door: Door::new(listener, options, meet),
            many: Mpsc::new(&options),
            senders: BTreeMap::new(),
        };
        let inside = Inside {
            open: Some(open),
            reading: Reading::new(manner.copies, options.trusted),
            expected,
            gone: 0,
            received: 0,
            departed: Vec::new(),
            last: None,
        };
        Ok(Self { inside: Alone::new(inside), shown: Shown::new(py, manner.hold)? })
    }

    fn array(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Py<PyAny>> {
        self.shown.check(py)?;
        let read = |reading: &Reading, come: Arrived<'_>| reading.array(come);
        let message = self.inside.with(py, |inside| inside.next(py, deadline, read))?;
        self.shown.array(py, message)
    }
}

/// The result of one check.
enum Found<T> {
    Message(u64, T),
    /// The message was left.
    Other(Unread),
    /// A part of a message was taken; or the reason why it is invalid.
    Part(Result<(), Refused>),
    Left(u64, Error),
    Nothing,
}

impl Inside {
    /// Waits for the next message and passes it to `read`.
    fn next<T: Send>(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        read: impl Fn(&Reading, Arrived<'_>) -> Made<T> + Send + Sync,
    ) -> PyResult<T> {
        loop {
            let found = self.look(py, deadline, &read)?;
            match found {
                Found::Message(from, message) => {
                    self.received += 1;
                    if let Some(sender) = self.open.as_mut().and_then(|o| o.senders.get_mut(&from))
                    {
                        sender.received += 1;
                        self.last = Some(sender.process);
                    }
                    return Ok(message);
                }
                Found::Other(why) => return Err(unread(py, why)),
                Found::Part(taken) => {
                    py.check_signals()?;
                    taken.map_err(|why| refused(py, why))?;
                }
                Found::Left(from, error) => self.leave(from, error),
                Found::Nothing => {
                    py.check_signals()?;
                    if self.is_over() {
                        return Err(raised(py)(Error::Closed { delivered: self.received }));
                    }
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(raised(py)(Error::Timeout));
                    }
                }
            }
        }
    }

    /// Waits for one time slice, and admits new senders.
    fn look<T: Send>(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        read: &(impl Fn(&Reading, Arrived<'_>) -> Made<T> + Send + Sync),
    ) -> PyResult<Found<T>> {
        let is_over = self.is_over();
        let open = self.open.as_mut().ok_or_else(closed)?;
        for consumer in open.door.arrivals().map_err(raised(py))? {
            let process = consumer.peer().pid;
            let number = open.many.admit(consumer);
            open.senders.insert(number, Sender { process, received: 0, long: Long::default() });
        }
        let slice = Instant::now() + if open.door.is_meeting() { MEETING } else { SLICE };
        let until = deadline.map_or(slice, |deadline| deadline.min(slice));
        let reading = &self.reading;
        let Open { door, many, senders } = open;
        let made = |from: u64, come: Arrived<'_>| match read(reading, come) {
            Ok(message) => Found::Message(from, message),
            Err(why) => Found::Other(why),
        };
        let looked = py.detach(|| {
            if let Some((from, sender)) = senders.iter_mut().find(|(_, s)| s.long.is_whole()) {
                return Ok(made(*from, Come::InParts(&mut sender.long)));
            }
            if many.producers() == 0 {
                if !is_over {
                    door.wait(until)?;
                }
                return Ok(Found::Nothing);
            }
            match many.receive_until(Some(until)) {
                Ok(Arrival::Message { from, sample }) => {
                    let long = senders.get_mut(&from).map(|sender| &mut sender.long);
                    match long.and_then(|long| long.take(&sample, &reading.pool, None)) {
                        Some(taken) => Ok(Found::Part(taken)),
                        None => Ok(made(from, Come::InRing(sample))),
                    }
                }
                Ok(Arrival::Left { from, error }) => Ok(Found::Left(from, error)),
                // If a sender's ring is corrupt, the next check reports its departure.
                Err(Error::Timeout | Error::Corrupt { .. }) => Ok(Found::Nothing),
                Err(error) => Err(error),
            }
        });
        looked.map_err(raised(py))
    }

    fn leave(&mut self, from: u64, error: Error) {
        self.gone += 1;
        let sender = self.open.as_mut().and_then(|open| open.senders.remove(&from));
        if let (Some(sender), false) = (sender, matches!(error, Error::Closed { .. })) {
            self.departed.push((sender.process, sender.received, error));
        }
    }

    /// Returns `true` if all expected senders have come and gone.
    fn is_over(&self) -> bool {
        self.expected.is_some_and(|expected| self.gone >= expected)
            && self.open.as_ref().is_none_or(|open| open.senders.is_empty())
    }
}

#[pymethods]
impl Gather {
    /// The next array of any sender; waits for it, and for senders. Closed when as many as were expected have gone.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.array(py, deadline(timeout)?)
    }

    /// The next object, sent by `send_object`. As `Take.receive_object`.
    #[pyo3(signature = (timeout=None))]
    fn receive_object(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        self.shown.check(py)?;
        let read = |reading: &Reading, come: Arrived<'_>| reading.object(come);
        let object = self.inside.with(py, |inside| {
            may_unpickle(py, &inside.reading)?;
            inside.next(py, deadline, read)
        })?;
        self.shown.object(py, object)
    }

    /// The next message as bytes, whatever is in it.
    #[pyo3(signature = (timeout=None))]
    fn receive_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let deadline = deadline(timeout)?;
        let read = |reading: &Reading, come: Arrived<'_>| reading.bytes(come);
        let (mut room, skip, len) =
            self.inside.with(py, |inside| inside.next(py, deadline, read))?;
        Ok(PyBytes::new(py, &room.bytes(skip + len)[skip..]))
    }

    /// For event loops. True: wait until one of `filenos()` is readable, then `receive(timeout=0)`; while `is_meeting`,
    /// and once in a while, without that. False: receive at once.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            let is_over = inside.is_over();
            let open = inside.open.as_mut().ok_or_else(closed)?;
            if is_over || open.senders.values().any(|sender| sender.long.is_whole()) {
                return Ok(false);
            }
            Ok(open.many.producers() == 0 || open.many.arm())
        })
    }

    /// What an event loop polls for reading, after `arm`: the listener, and what tells of each sender. Others after each
    /// `receive`.
    fn filenos(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inside.with(py, |inside| {
            let open = inside.open.as_ref().ok_or_else(closed)?;
            let all = std::iter::once(open.door.descriptor()).chain(open.many.descriptors());
            Ok(all.map(|descriptor| descriptor.as_raw_fd()).collect())
        })
    }

    /// Whether a sender is about to be let in, of which no descriptor tells.
    #[getter]
    fn is_meeting(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| Ok(inside.open.as_ref().is_some_and(|o| o.door.is_meeting())))
    }

    /// Says goodbye to all.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut inside) = self.inside.here()? else { return Ok(()) };
        let open = inside.open.take();
        drop(inside);
        py.detach(|| drop(open));
        Ok(())
    }

    /// Senders that have ended without a goodbye, as `Queue.departed()` tells them.
    fn departed(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let kind = py.import("thalweg._receiver")?.getattr("Departed")?;
        self.inside.with(py, |inside| {
            let told = inside.departed.iter().map(|(process, received, error)| {
                let error = raised(py)(error.clone()).into_value(py);
                Ok(kind.call1((*process, *received, error))?.unbind())
            });
            told.collect()
        })
    }

    /// Messages received.
    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| Ok(inside.received))
    }

    /// Senders that are there.
    #[getter]
    fn senders(&self, py: Python<'_>) -> PyResult<usize> {
        self.inside.with(py, |inside| Ok(inside.open.as_ref().map_or(0, |o| o.senders.len())))
    }

    /// The process that sent the message received last; None before that.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| Ok(inside.last))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.array(py, None).map_err(|error| ending(py, error))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
