//! The end that receives from several producers.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::time::{Duration, Instant};
use thalweg_channel::{Arrival, Consumer, Error, Listener, Mpsc, Options, Sample};

use crate::alone::OneThread;
use crate::consumer::{ReceiveOptions, may_unpickle, refused, unread};
use crate::error::raised;
use crate::long::{Long, Refused};
use crate::many::{ManyPeers, OpenPeers};
use crate::read::{Come, ReadSettings, Unread};
use crate::shown::{MessageConverter, ending};
use crate::wait::deadline;
use thalweg_core::cadence::CANCEL_CHECK;

/// Longest wait while a handshake is in progress.
const MEETING: Duration = Duration::from_millis(1);

/// The receiving end of channels from any number of producers, created by `gather`. Each producer has its own ring, and
/// their messages are received in turn. Iterating over it receives until the expected number of producers has left.
///
/// One thread at a time may use it; another gets a RuntimeError. Received arrays stay valid after it is closed.
#[pyclass(frozen, name = "Mpsc", module = "thalweg")]
pub struct PyMpsc {
    inside: OneThread<MpscInner>,
    shown: MessageConverter,
}

struct MpscInner {
    many: ManyPeers<Mpsc, MpscProducer>,
    reading: ReadSettings,
    /// Number of producers after which iteration ends.
    expected: Option<usize>,
    gone: usize,
    received: u64,
    departed: Vec<(u32, u64, Error)>,
    /// Process that sent the last message.
    last: Option<u32>,
}

struct MpscProducer {
    process: u32,
    received: u64,
    long: Long,
}

/// The result of reading a message, or the reason why it was left in the ring.
type ReadResult<T> = Result<T, Unread>;
type Arrived<'a> = Come<'a, Sample<'a>>;

impl PyMpsc {
    pub fn new(
        py: Python<'_>,
        listener: Listener,
        options: Options,
        manner: ReceiveOptions,
        expected: Option<usize>,
    ) -> PyResult<Self> {
        let meet =
            |link, options: &Options, until| Consumer::open_until(link, options, Some(until));
        let inside = MpscInner {
            many: ManyPeers::new(listener, options, meet, Mpsc::new(&options)),
            reading: ReadSettings::new(manner.copies, options.trusted),
            expected,
            gone: 0,
            received: 0,
            departed: Vec::new(),
            last: None,
        };
        Ok(Self { inside: OneThread::new(inside), shown: MessageConverter::new(py, manner.hold)? })
    }

    fn array(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Py<PyAny>> {
        self.shown.check(py)?;
        let read = |reading: &ReadSettings, come: Arrived<'_>| reading.array(come);
        let message = self.inside.with(py, |inside| inside.next(py, deadline, read))?;
        self.shown.array(py, message)
    }
}

/// The result of one check.
enum MpscLook<T> {
    Message(u64, T),
    /// The message was left in the ring.
    Other(Unread),
    /// The result of taking a part of a longer message.
    Part(Result<(), Refused>),
    Left(u64, Error),
    Nothing,
}

impl MpscInner {
    /// Waits for the next message and passes it to `read`.
    fn next<T: Send>(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        read: impl Fn(&ReadSettings, Arrived<'_>) -> ReadResult<T> + Send + Sync,
    ) -> PyResult<T> {
        loop {
            let found = self.look(py, deadline, &read)?;
            match found {
                MpscLook::Message(from, message) => {
                    self.received += 1;
                    if let Some(producer) = self.many.open()?.peers.get_mut(&from) {
                        producer.received += 1;
                        self.last = Some(producer.process);
                    }
                    return Ok(message);
                }
                MpscLook::Other(why) => return Err(unread(py, why)),
                MpscLook::Part(taken) => {
                    py.check_signals()?;
                    taken.map_err(|why| refused(py, why))?;
                }
                MpscLook::Left(from, error) => self.leave(from, error),
                MpscLook::Nothing => {
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

    /// Admits new producers, and waits for a message for one time slice.
    fn look<T, R>(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        read: &R,
    ) -> PyResult<MpscLook<T>>
    where
        T: Send,
        R: Fn(&ReadSettings, Arrived<'_>) -> ReadResult<T> + Send + Sync,
    {
        let is_over = self.is_over();
        let open = self.many.open()?;
        open.admit(py, |process| MpscProducer { process, received: 0, long: Long::default() })?;
        let slice = Instant::now() + if open.door.is_meeting() { MEETING } else { CANCEL_CHECK };
        let until = deadline.map_or(slice, |deadline| deadline.min(slice));
        let reading = &self.reading;
        let OpenPeers { door, rings, peers } = open;
        let made = |from: u64, come: Arrived<'_>| match read(reading, come) {
            Ok(message) => MpscLook::Message(from, message),
            Err(why) => MpscLook::Other(why),
        };
        let looked = py.detach(|| {
            if let Some((from, producer)) = peers.iter_mut().find(|(_, p)| p.long.is_whole()) {
                return Ok(made(*from, Come::InParts(&mut producer.long)));
            }
            if rings.producers() == 0 {
                if !is_over {
                    door.wait(until)?;
                }
                return Ok(MpscLook::Nothing);
            }
            match rings.receive_until(Some(until)) {
                Ok(Arrival::Message { from, sample }) => {
                    let long = peers.get_mut(&from).map(|producer| &mut producer.long);
                    match long.and_then(|long| long.take(&sample, &reading.pool, None)) {
                        Some(taken) => Ok(MpscLook::Part(taken)),
                        None => Ok(made(from, Come::InRing(sample))),
                    }
                }
                Ok(Arrival::Left { from, error }) => Ok(MpscLook::Left(from, error)),
                // If the ring of a producer is corrupt, the next call of `receive_until` reports that the producer has
                // left.
                Err(Error::Timeout | Error::Corrupt { .. }) => Ok(MpscLook::Nothing),
                Err(error) => Err(error),
            }
        });
        looked.map_err(raised(py))
    }

    fn leave(&mut self, from: u64, error: Error) {
        self.gone += 1;
        let producer = self.many.open().ok().and_then(|open| open.peers.remove(&from));
        if let (Some(producer), false) = (producer, matches!(error, Error::Closed { .. })) {
            self.departed.push((producer.process, producer.received, error));
        }
    }

    /// Returns `true` if all expected producers have connected and left.
    fn is_over(&self) -> bool {
        self.expected.is_some_and(|expected| self.gone >= expected)
            && self.many.get().is_none_or(|open| open.peers.is_empty())
    }
}

#[pymethods]
impl PyMpsc {
    /// Waits for the next array of any producer and returns it. Also waits while no producer is connected. Raises Closed
    /// when the expected number of producers has left.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.array(py, deadline(timeout)?)
    }

    /// Waits for the next object, sent by `send_object`, and returns it, like `Consumer.receive_object`.
    #[pyo3(signature = (timeout=None))]
    fn receive_object(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        self.shown.check(py)?;
        let read = |reading: &ReadSettings, come: Arrived<'_>| reading.object(come);
        let object = self.inside.with(py, |inside| {
            may_unpickle(py, &inside.reading)?;
            inside.next(py, deadline, read)
        })?;
        self.shown.object(py, object.0, object.1)
    }

    /// Returns the next message as bytes, without interpreting it.
    #[pyo3(signature = (timeout=None))]
    fn receive_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let deadline = deadline(timeout)?;
        let read = |reading: &ReadSettings, come: Arrived<'_>| reading.bytes(come);
        let (mut room, skip, len) =
            self.inside.with(py, |inside| inside.next(py, deadline, read))?;
        Ok(PyBytes::new(py, &room.bytes(skip + len)[skip..]))
    }

    /// For event loops. Returns True if the caller should wait until one of `filenos()` is readable and then call
    /// `receive(timeout=0)`. While `is_meeting` is True, and otherwise from time to time, the caller should call
    /// `receive(timeout=0)` even if no descriptor is readable. Returns False if `receive` would not wait.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            let is_over = inside.is_over();
            let open = inside.many.open()?;
            if is_over || open.peers.values().any(|producer| producer.long.is_whole()) {
                return Ok(false);
            }
            Ok(open.rings.producers() == 0 || open.rings.arm())
        })
    }

    /// The descriptors that an event loop polls for reading, after `arm`: the listener's, then one for each producer.
    /// They may change with each `receive`, because producers connect and leave.
    fn filenos(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inside.with(py, |inside| inside.many.filenos())
    }

    /// True while a producer is connecting. No descriptor becomes readable when its handshake ends.
    #[getter]
    fn is_meeting(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| Ok(inside.many.is_meeting()))
    }

    /// Closes the channels to all producers.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inside.close(py, |inside| inside.many.close())
    }

    /// The producers that ended without closing, in the form of `Queue.departed()`.
    fn departed(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let kind = py.import("thalweg._receiver")?.getattr("Departed")?;
        self.inside.with(py, |inside| {
            let all = inside.departed.iter().map(|(process, received, error)| {
                let error = raised(py)(error.clone()).into_value(py);
                Ok(kind.call1((*process, *received, error))?.unbind())
            });
            all.collect()
        })
    }

    /// Number of messages received.
    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| Ok(inside.received))
    }

    /// Number of producers that are connected.
    #[getter]
    fn producers(&self, py: Python<'_>) -> PyResult<usize> {
        self.inside.with(py, |inside| Ok(inside.many.get().map_or(0, |open| open.peers.len())))
    }

    /// The process that sent the last message received; None before the first.
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
