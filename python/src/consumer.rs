//! The end that receives.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;
use thalweg_channel::{Address, Consumer, Error, Link, Options};

use crate::alone::OneThread;
use crate::error::{PyFailure, closed, is_timeout, raised};
use crate::header::Layout;
use crate::long::{ArrayTarget, Long, Refused};
use crate::memory::HeldBuffer;
use crate::read::{Come, ReadSettings, ReceivedPiece, Unread};
use crate::shown::{MessageConverter, ending};
use crate::source::{NextMessage, ReceiveSource};
use crate::wait::{PendingHandshake, deadline, patiently};

mod batch;
mod connect;

/// The receiving end of a channel, created by `take`, `subscribe` or `pair`. Iterating over it receives until the producer
/// closes the channel; it raises PeerDied if the producer ends without closing it.
///
/// One thread at a time may use it; another gets a RuntimeError. Received arrays stay valid after it is closed.
#[pyclass(frozen, name = "Consumer", module = "thalweg")]
pub struct PyConsumer {
    inside: OneThread<ConsumerInner>,
    shown: MessageConverter,
}

/// Treatment of received messages.
#[derive(Clone, Copy, Default)]
pub struct ReceiveOptions {
    /// `true` if they come from a broadcast.
    pub subscribes: bool,
    /// `true` if they are copied to private memory.
    pub copies: bool,
    /// Number of uncopied messages that the caller may hold. If the caller holds more, its next request issues a
    /// warning.
    pub hold: Option<usize>,
}

struct ConsumerInner {
    state: ConsumerStage,
    options: Options,
    subscribes: bool,
    reading: ReadSettings,
    long: Long,
    /// Error that `receive_all` found after the arrays that it returned. The next call raises it.
    late: Option<PyErr>,
}

enum ConsumerStage {
    /// The address of the sender, and the link once connected. Nothing was received over the link yet.
    Seeking(Address, Option<Link>),
    /// A link over which nothing was received yet.
    Linked(Link),
    /// A handshake, with the address to connect to again if it fails.
    Meeting(PendingHandshake<ReceiveSource>, Option<Address>),
    Open(ReceiveSource),
    Closed,
}

impl PyConsumer {
    fn new(
        py: Python<'_>,
        state: ConsumerStage,
        options: Options,
        manner: ReceiveOptions,
    ) -> PyResult<Self> {
        let shown = MessageConverter::new(py, manner.hold)?;
        let reading = ReadSettings::new(manner.copies, options.trusted);
        let subscribes = manner.subscribes;
        let (long, late) = (Long::default(), None);
        let inside = ConsumerInner { state, options, subscribes, reading, long, late };
        Ok(Self { inside: OneThread::new(inside), shown })
    }

    pub fn seeking(
        py: Python<'_>,
        from: Address,
        options: Options,
        manner: ReceiveOptions,
    ) -> PyResult<Self> {
        Self::new(py, ConsumerStage::Seeking(from, None), options, manner)
    }

    pub fn over(
        py: Python<'_>,
        link: Link,
        options: Options,
        manner: ReceiveOptions,
    ) -> PyResult<Self> {
        Self::new(py, ConsumerStage::Linked(link), options, manner)
    }

    pub fn open(
        py: Python<'_>,
        consumer: Consumer,
        options: Options,
        manner: ReceiveOptions,
    ) -> PyResult<Self> {
        Self::new(py, ConsumerStage::Open(ReceiveSource::Ring(Box::new(consumer))), options, manner)
    }

    fn next(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Py<PyAny>> {
        self.shown.check(py)?;
        let read = |reading: &ReadSettings, come: Come<'_, NextMessage<'_>>| reading.array(come);
        let message = self.inside.with(py, |inside| inside.read(py, deadline, None, read))?;
        let message = message.map_err(|why| unread(py, why))?;
        self.shown.array(py, message)
    }
}

impl ConsumerInner {
    /// Waits for the next message and passes it to `read`. Reassembles a message that was sent in parts, in private
    /// memory or in the target.
    fn read<T: Send>(
        &mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        target: Option<&ArrayTarget<'_>>,
        read: impl FnOnce(&ReadSettings, Come<'_, NextMessage<'_>>) -> T + Send,
    ) -> PyResult<T> {
        if let Some(error) = self.late.take() {
            return Err(error);
        }
        let (mut read, mut collected) = (Some(read), false);
        loop {
            if !self.long.is_whole() {
                self.ring(py, deadline)?;
            }
            let ConsumerStage::Open(source) = &mut self.state else { return Err(closed()) };
            let (reading, long) = (&self.reading, &mut self.long);
            let mut made = |come: Come<'_, NextMessage<'_>>| {
                let read = read.take().expect("a look that has read is the last");
                ReadOutcome::Read(read(reading, come))
            };
            // Releases the interpreter lock once for both the check and the read, because releasing and taking the lock
            // costs as much as a short message.
            let looked = patiently(py, deadline, |until| {
                if long.is_whole() {
                    return Ok(made(Come::InParts(long)));
                }
                let why = match source.receive(until) {
                    Ok(next) => {
                        let taken = long.take(&next, &reading.pool, target);
                        return Ok(
                            taken.map_or_else(|| made(Come::InRing(next)), ReadOutcome::Part)
                        );
                    }
                    Err(why) => why,
                };
                let is_held_up = matches!(why, Error::Timeout) && source.holds_up()?;
                if is_held_up { Ok(ReadOutcome::HeldUp) } else { Err(why) }
            })?;
            match looked {
                ReadOutcome::Read(found) => return Ok(found),
                ReadOutcome::Part(taken) => {
                    py.check_signals()?;
                    taken.map_err(|why| refused(py, why))?;
                    collected = false;
                }
                ReadOutcome::HeldUp => {
                    py.check_signals()?;
                    check_held_up(py, source, &mut collected)?;
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(raised(py)(Error::Timeout));
                    }
                }
            }
        }
    }
}

/// The result of one check of the ring.
enum ReadOutcome<T> {
    Read(T),
    /// The result of taking a part of a longer message.
    Part(Result<(), Refused>),
    /// The sender waits for messages that are held here.
    HeldUp,
}

#[pymethods]
impl PyConsumer {
    /// Waits for the next array and returns it. Raises PeerDied or Closed if the producer is gone and everything was
    /// received. Raises TooLarge if no array can ever arrive, because arrays in use fill the ring and no other thread can
    /// free them.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.next(py, deadline(timeout)?)
    }

    /// Returns the next array; None if none is available now.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.is_ready(py)? {
            return Ok(None);
        }
        match self.next(py, Some(Instant::now())) {
            Err(error) if is_timeout(py, &error) => Ok(None),
            next => next.map(Some),
        }
    }

    /// Waits for the first array, and returns all that are available now, at most `most`. If a later one is invalid, the
    /// next call raises its error.
    #[pyo3(signature = (most=None, timeout=None))]
    fn receive_all(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        self.all(py, most.unwrap_or(usize::MAX), deadline(timeout)?)
    }

    /// True if a message is available now, or if the ring does not exist yet. Raises PeerDied and Closed like
    /// `receive`.
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            // Before the ring is open, only a call of `receive` can make progress, because it connects.
            let ConsumerStage::Open(source) = &mut inside.state else { return Ok(true) };
            if inside.long.is_whole() || inside.late.is_some() {
                return Ok(true);
            }
            let found = source.try_next().map_err(raised(py))?;
            Ok(found.map(ReceivedPiece::leave).is_some())
        })
    }

    /// Waits for the next object, sent by `send_object`, and returns it. Its arrays are read-only views of the message and
    /// keep it alive, like those of `receive`; with `copy=True` they are copies. If unpickling raises an exception, the
    /// caller gets it, and the message counts as received. Raises NotPermitted with `trusted=False`.
    #[pyo3(signature = (timeout=None))]
    fn receive_object(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        self.shown.check(py)?;
        let read = |reading: &ReadSettings, come: Come<'_, NextMessage<'_>>| reading.object(come);
        let object = self.inside.with(py, |inside| {
            may_unpickle(py, &inside.reading)?;
            inside.read(py, deadline, None, read)
        })?;
        let object = object.map_err(|why| unread(py, why))?;
        self.shown.object(py, object.0, object.1)
    }

    /// Waits until the producer is connected and has created the ring. The producer creates it when it first sends.
    #[pyo3(name = "open", signature = (timeout=None))]
    fn meet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.ring(py, deadline).map(drop))
    }

    /// Copies the next array into `into`, which must have the same type and shape, and returns `into`. If type or shape
    /// differ, raises ValueError and leaves the message for the next call. An array larger than the ring is copied in
    /// parts: after Timeout or another error, `into` may contain some parts.
    #[pyo3(signature = (into, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        let given = HeldBuffer::get(into, true)?;
        let room = given.layout();
        let read = |_: &ReadSettings, come: Come<'_, NextMessage<'_>>| {
            let fitting = |message: &[u8]| match Layout::read(message) {
                Ok(layout) if room.as_ref().is_some_and(|room| room.holds(&layout)) => {
                    given.copy_from(message.get(layout.offset()..).unwrap_or_default());
                    Ok(())
                }
                other => Err(other),
            };
            match come {
                Come::InParts(long) if long.is_in_array() => {
                    long.finish();
                    Ok(())
                }
                Come::InParts(long) => {
                    let copied = fitting(long.message());
                    if copied.is_ok() {
                        long.finish();
                    }
                    copied
                }
                Come::InRing(next) => fitting(&next).inspect_err(|_| next.leave()),
            }
        };
        let target = room.as_ref().map(|layout| ArrayTarget { given: &given, layout });
        let copied = self.inside.with(py, |inside| {
            let copied = inside.read(py, deadline, target.as_ref(), read);
            let left = inside.long.leave_array(&given, &inside.reading.pool);
            left.map_err(|why| refused(py, why)).and(copied)
        })?;
        match copied {
            Ok(()) => Ok(into.clone().unbind()),
            Err(Ok(layout)) => Err(layout.unlike(room.as_ref())),
            Err(Err(why)) => Err(unread(py, Unread::Corrupt(why))),
        }
    }

    /// Returns the next message as bytes, without interpreting it. For messages of programs in other languages.
    #[pyo3(signature = (timeout=None))]
    fn receive_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let deadline = deadline(timeout)?;
        let read = |reading: &ReadSettings, come: Come<'_, NextMessage<'_>>| reading.bytes(come);
        let bytes = self.inside.with(py, |inside| inside.read(py, deadline, None, read))?;
        let (mut room, skip, len) = bytes.map_err(|why| unread(py, why))?;
        Ok(PyBytes::new(py, &room.bytes(skip + len)[skip..]))
    }

    /// For event loops. Returns True if the caller should wait until `fileno()` is readable, and then call `try_receive`.
    /// Returns False if it can receive immediately.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            if inside.long.is_whole() || inside.late.is_some() {
                return Ok(false);
            }
            match &mut inside.state {
                ConsumerStage::Open(source) => source.arm().map_err(raised(py)),
                ConsumerStage::Linked(_) | ConsumerStage::Seeking(_, Some(_)) => Ok(true),
                _ => Ok(false),
            }
        })
    }

    /// The descriptor that an event loop polls for reading, after `arm` returned True. Raises ValueError before a
    /// producer is found, and during the handshake.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.inside.with(py, |inside| match &inside.state {
            ConsumerStage::Open(source) => Ok(source.as_fd().as_raw_fd()),
            ConsumerStage::Linked(link) | ConsumerStage::Seeking(_, Some(link)) => {
                Ok(link.as_fd().as_raw_fd())
            }
            _ => Err(closed()),
        })
    }

    /// Closes the channel.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inside.close(py, |inside| mem::replace(&mut inside.state, ConsumerStage::Closed))
    }

    /// Number of messages received.
    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            ConsumerStage::Open(source) => Ok(source.received()),
            _ => Ok(0),
        })
    }

    /// Number of messages that the broadcast dropped because this end was too slow.
    #[getter]
    fn missed(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            ConsumerStage::Open(source) => Ok(source.missed()),
            _ => Ok(0),
        })
    }

    /// The id of the process that sends; None until the ring exists.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| match &inside.state {
            ConsumerStage::Open(source) => Ok(Some(source.peer())),
            _ => Ok(None),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.next(py, None).map_err(|error| ending(py, error))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

/// Returns NotPermitted if the sender is not trusted.
pub fn may_unpickle(py: Python<'_>, reading: &ReadSettings) -> PyResult<()> {
    if reading.trusted {
        return Ok(());
    }
    let why = "cannot unpickle with trusted=False: a pickle can run any code in this process";
    Err(PyFailure::new("NotPermitted", why).raised(py))
}

/// Converts the error of a part of a message.
pub fn refused(py: Python<'_>, why: Refused) -> PyErr {
    match why {
        Refused::TooLarge(why) => PyFailure::new("TooLarge", why),
        Refused::Corrupt(why) => PyFailure::new("Corrupt", why),
    }
    .raised(py)
}

/// Converts the error of a message that was left in the ring.
pub fn unread(py: Python<'_>, why: Unread) -> PyErr {
    match why {
        Unread::Corrupt(why) => {
            let words =
                format!("{why}; the message was not removed, and receive_bytes can receive it");
            PyFailure::new("Corrupt", words)
        }
        Unread::NoMemory(bytes) => {
            let words = format!(
                "cannot allocate {bytes} bytes for the message; the message was not removed"
            );
            PyFailure::new("TooLarge", words)
        }
    }
    .raised(py)
}

/// Returns the number of Python threads, without those of this package. Other threads may release arrays while this one
/// waits.
fn threads(py: Python<'_>) -> PyResult<usize> {
    py.import("thalweg._threads")?.call_method0("others")?.extract()
}

/// Returns an error if arrays in use fill the ring and no other thread can free them. Collects garbage before, unless
/// `collected` is set, because reference cycles may keep unreachable arrays alive. A collection may exceed the
/// caller's deadline.
fn check_held_up(py: Python<'_>, source: &ReceiveSource, collected: &mut bool) -> PyResult<()> {
    let held = source.held();
    if !std::mem::replace(collected, true) {
        py.import("gc")?.call_method0("collect")?;
    }
    let is_final = source.held() == held && threads(py)? == 1;
    if is_final { Err(held_up(py, held)) } else { Ok(()) }
}

fn held_up(py: Python<'_>, held: usize) -> PyErr {
    let words = format!(
        "{held} received arrays are still in use and fill the ring, so the producer waits, and no other thread can free \
         them; nothing is lost: delete some (`del`), keep copies (`array.copy()`, take(..., copy=True)), or offer with a \
         larger `capacity`"
    );
    PyFailure::new("TooLarge", words).raised(py)
}
