//! The end that sends.

use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CString;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;
use thalweg_channel::{Address, DetachedLoan, Link, Listener, Options, Producer};

use crate::alone::OneThread;
use crate::content::{MessageContent, SendsContent, deliver, message_of};
use crate::error::{closed, raised};
use crate::header::{Encoding, Layout};
use crate::long::MessagePart;
use crate::memory::{PyLoan, SharedProducer, references};
use crate::wait::{PendingHandshake, deadline, patiently};

mod batch;
mod connect;

/// If `capacity` is not given, the ring has room for this many arrays of the first one's size, and at least [`LEAST`]
/// bytes.
const AHEAD: usize = 4;
const LEAST: usize = 1 << 20;

/// The sending end of a channel, created by `offer`, `join` or `pair`.
///
/// One thread at a time may use it; another gets a RuntimeError. Closing it ends the channel: the consumer receives
/// everything that was sent, then Closed.
#[pyclass(frozen, name = "Producer", module = "thalweg")]
pub struct PyProducer {
    inside: OneThread<ProducerInner>,
}

struct ProducerInner {
    state: ProducerStage,
    making: RingOptions,
    lent: Option<LentRoom>,
    /// Size in bytes of the message for which room was last requested.
    wanted: usize,
    /// Number of long messages so far; `None` if messages larger than the ring are rejected as TooLarge.
    long: Option<u32>,
}

/// Settings for creating a ring.
#[derive(Clone, Copy)]
pub struct RingOptions {
    pub options: Options,
    /// `true` if the caller specified the capacity.
    pub is_sized: bool,
    /// `true` if a message larger than the ring is sent in parts.
    pub in_parts: bool,
}

enum ProducerStage {
    Listening(Listener),
    /// Connects to the gatherer when the first message is sent.
    Seeking(Address),
    /// A link over which nothing was sent yet.
    Linked(Link),
    /// A handshake, and the state to return to if it fails: `Closed` if no other peer can connect.
    Meeting(PendingHandshake<Producer>, Box<ProducerStage>),
    Open(SharedProducer),
    Closed,
}

struct LentRoom {
    loan: Py<PyLoan>,
    /// The numpy array that is the base of all other arrays over the reserved room; `None` without numpy.
    root: Option<Py<PyAny>>,
    detached: DetachedLoan,
}

impl PyProducer {
    fn new(state: ProducerStage, making: RingOptions) -> Self {
        let long = making.in_parts.then_some(0);
        let inside = ProducerInner { state, making, lent: None, wanted: 0, long };
        Self { inside: OneThread::new(inside) }
    }

    pub fn listening(listener: Listener, making: RingOptions) -> Self {
        Self::new(ProducerStage::Listening(listener), making)
    }

    pub fn seeking(from: Address, making: RingOptions) -> Self {
        Self::new(ProducerStage::Seeking(from), making)
    }

    pub fn over(link: Link, making: RingOptions) -> Self {
        Self::new(ProducerStage::Linked(link), making)
    }

    pub fn open(producer: Producer, making: RingOptions) -> Self {
        Self::new(ProducerStage::Open(SharedProducer::new(producer)), making)
    }
}

impl ProducerInner {
    /// Returns the ring for a message of `len` bytes. Fails while room is lent.
    fn ready(
        &mut self,
        py: Python<'_>,
        len: usize,
        deadline: Option<Instant>,
    ) -> PyResult<SharedProducer> {
        if self.lent.is_some() {
            return Err(PyBufferError::new_err("a slot is loaned: commit or discard it first"));
        }
        self.wanted = len;
        self.ring(py, len, deadline)
    }

    /// Waits until the ring has room for a message of `len` bytes, and reserves it.
    fn room(
        &mut self,
        py: Python<'_>,
        len: usize,
        deadline: Option<Instant>,
    ) -> PyResult<(SharedProducer, DetachedLoan)> {
        let ring = self.ready(py, len, deadline)?;
        let mut producer = ring.producer();
        let waiting = &mut *producer;
        let reserve = |until| Ok(waiting.loan_until(len, Some(until))?.detach());
        let detached = patiently(py, deadline, reserve)?;
        drop(producer);
        Ok((ring, detached))
    }

    /// Sends a message of `len` bytes that `write` fills.
    fn send_one(
        &mut self,
        py: Python<'_>,
        len: usize,
        deadline: Option<Instant>,
        write: impl FnOnce(&mut [u8]) + Send,
    ) -> PyResult<()> {
        let ring = self.ready(py, len, deadline)?;
        let mut producer = ring.producer();
        let (producer, mut write) = (&mut *producer, Some(write));
        // Waits, writes and commits without taking the interpreter lock in between, because releasing and taking it is
        // slow.
        patiently(py, deadline, |until| {
            let mut room = producer.loan_until(len, Some(until))?;
            let write = write.take().expect("room that was written is published");
            write(&mut room);
            room.commit()
        })
    }

    /// Sends a message that is larger than the ring. After an error the receiver drops the received parts when the
    /// next message arrives.
    fn send_in_parts(
        &mut self,
        py: Python<'_>,
        content: &MessageContent,
        deadline: Option<Instant>,
        serial: u32,
        each: usize,
    ) -> PyResult<()> {
        let len = content.message();
        let mut whole = Vec::new();
        if !content.is_flat() {
            if whole.try_reserve_exact(len).is_err() {
                return Err(PyMemoryError::new_err(()));
            }
            let write = content.writer(py);
            py.detach(|| {
                whole.resize(len, 0);
                write(&mut whole);
            });
        }
        let each = each.saturating_sub(MessagePart::HEAD).max(1);
        for at in (0..len).step_by(each) {
            py.check_signals()?;
            let part = MessagePart { serial, total: len, at };
            let bytes = each.min(len - at);
            self.send_one(py, MessagePart::HEAD + bytes, deadline, |message| {
                let (head, body) = message.split_at_mut(MessagePart::HEAD);
                head.copy_from_slice(&part.head());
                match whole.get(at..at + bytes) {
                    Some(bytes) => body.copy_from_slice(bytes),
                    None => content.write_part(at, body),
                }
            })?;
        }
        Ok(())
    }
}

impl SendsContent for ProducerInner {
    /// Sends a message, in parts if it is larger than the ring and may be split.
    fn send(
        &mut self,
        py: Python<'_>,
        content: &MessageContent,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let len = content.message();
        if let Some(before) = self.long.filter(|_| content.may_be_cut()) {
            let largest = self.ring(py, len, deadline)?.producer().largest();
            if len > largest {
                self.long = Some(before.wrapping_add(1));
                return self.send_in_parts(py, content, deadline, before, largest / AHEAD);
            }
        }
        self.send_one(py, len, deadline, content.writer(py))
    }
}

#[pymethods]
impl PyProducer {
    /// Sends an array, or another object with a buffer, as it is now. The elements are copied once, also if they are not
    /// contiguous. Waits until the consumer is connected and the ring has room.
    #[pyo3(signature = (obj, timeout=None))]
    fn send(&self, py: Python<'_>, obj: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::array(obj)?, timeout)
    }

    /// Sends several arrays, as many at a time as the ring has room for. Such a group becomes visible at once, at the
    /// cost of one message. An array larger than the ring is sent in parts. If one of the objects cannot be sent, none
    /// is sent. After Timeout, `moved` is the number of arrays sent.
    #[pyo3(signature = (objs, timeout=None))]
    fn send_all(
        &self,
        py: Python<'_>,
        objs: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        let contents = objs.try_iter()?.map(|object| MessageContent::array(&object?));
        let contents = contents.collect::<PyResult<Vec<_>>>()?;
        self.inside.with(py, |inside| inside.send_all(py, &contents, deadline))
    }

    /// Sends bytes unchanged, without a header, for programs in other languages.
    #[pyo3(signature = (data, timeout=None))]
    fn send_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::bytes(data)?, timeout)
    }

    /// Sends any object that can be pickled, in one message. The memory of its arrays is copied once and not pickled.
    /// Waits like `send`. The receiver must trust this process, because a pickle can run any code there.
    #[pyo3(signature = (obj, timeout=None))]
    fn send_object(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        deliver(py, &self.inside, &MessageContent::object(obj)?, timeout)
    }

    /// Waits until the consumer is connected, and creates the ring if it does not exist. Without `capacity` the ring is
    /// sized for messages of `first` bytes.
    #[pyo3(name = "open", signature = (first=0, timeout=None))]
    fn meet(&self, py: Python<'_>, first: usize, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.ring(py, first, deadline).map(drop))
    }

    /// For event loops, after a send with a timeout of 0 that timed out. Returns True if the caller should wait until
    /// `fileno()` is readable and then send again. Returns False if the ring has room now.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| match &inside.state {
            ProducerStage::Open(ring) => ring.producer().arm(inside.wanted).map_err(raised(py)),
            ProducerStage::Listening(_) | ProducerStage::Linked(_) => Ok(true),
            _ => Ok(false),
        })
    }

    /// Returns room in the ring for an array of this shape and dtype, to be written in place. It is a numpy array.
    /// Without numpy it is a memoryview, and the dtype is a format of one character. Its contents are arbitrary. Waits
    /// like `send`.
    #[pyo3(signature = (shape, dtype=None, timeout=None))]
    fn empty(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        let shape = match shape.extract::<isize>() {
            Ok(length) => vec![length],
            Err(_) => shape.extract::<Vec<isize>>()?,
        };
        let arrays = py.import("thalweg._arrays")?;
        let described = arrays.getattr("described")?.call1((dtype,))?;
        let (encoding, format, item): (u8, String, usize) = described.extract()?;
        let encoding =
            if encoding == Encoding::Time as u8 { Encoding::Time } else { Encoding::Buffer };
        let format = CString::new(format)?;
        let layout = Layout::new(encoding, format, item, shape);
        let layout = layout.ok_or_else(|| {
            PyValueError::new_err("the shape has a negative length or exceeds the address space")
        })?;
        let len = message_of(py, &layout)?;
        self.inside.with(py, |inside| {
            let (ring, detached) = inside.room(py, len, deadline)?;
            let (loan, detached) = PyLoan::of(&ring, layout, detached).map_err(raised(py))?;
            let loan = Py::new(py, loan)?;
            let shown = arrays.getattr("lent")?.call1((&loan, dtype))?;
            let (array, root): (Py<PyAny>, Option<Py<PyAny>>) = shown.extract()?;
            inside.lent = Some(LentRoom { loan, root, detached });
            Ok(array)
        })
    }

    /// Sends the array that `empty` returned, without a copy. Afterwards `array` is empty, and access to a memoryview
    /// raises an exception. Raises BufferError while other arrays or views of the room exist, or without an argument,
    /// while any exists.
    #[pyo3(signature = (array=None))]
    fn commit(&self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.inside.with(py, |inside| {
            inside.take_back(py, array)?;
            let Some(lent) = inside.lent.take() else { return Err(nothing_lent()) };
            let ProducerStage::Open(ring) = &inside.state else { return Err(closed()) };
            let mut producer = ring.producer();
            let committed = producer.attach(lent.detached).and_then(|loan| loan.commit());
            committed.map_err(raised(py))
        })
    }

    /// Discards the array that `empty` returned. The rules are those of `commit`.
    #[pyo3(signature = (array=None))]
    fn discard(&self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.inside.with(py, |inside| {
            inside.take_back(py, array)?;
            inside.lent = None;
            Ok(())
        })
    }

    /// Waits until the consumer has received everything, and holds none of the received arrays any more.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            let ProducerStage::Open(ring) = &inside.state else { return Ok(()) };
            let mut producer = ring.producer();
            let waiting = &mut *producer;
            patiently(py, deadline, |until| waiting.drained_until(Some(until)))
        })
    }

    /// Closes the channel. If an array that `empty` returned still exists, the channel is closed when the array is
    /// freed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inside.close(py, |inside| {
            // The loan keeps the ring alive while an array refers to it.
            (inside.lent.take(), mem::replace(&mut inside.state, ProducerStage::Closed))
        })
    }

    /// Number of messages sent.
    #[getter]
    fn sent(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            ProducerStage::Open(ring) => Ok(ring.producer().sent()),
            _ => Ok(0),
        })
    }

    /// The id of the process that receives; None until the ring exists.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| match &inside.state {
            ProducerStage::Open(ring) => {
                let producer = ring.producer();
                Ok(Some(producer.peer().pid))
            }
            _ => Ok(None),
        })
    }

    /// The descriptor that an event loop polls for reading. Until the ring exists, this is the descriptor of the
    /// listener or of the link. Raises ValueError if the producer was created by `join` and is not connected.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.inside.with(py, |inside| {
            let state = match &inside.state {
                ProducerStage::Meeting(_, before) => before,
                state => state,
            };
            match state {
                ProducerStage::Listening(listener) => Ok(listener.as_fd().as_raw_fd()),
                ProducerStage::Linked(link) => Ok(link.as_fd().as_raw_fd()),
                ProducerStage::Open(ring) => {
                    let producer = ring.producer();
                    Ok(producer.as_fd().as_raw_fd())
                }
                _ => Err(closed()),
            }
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl ProducerInner {
    /// Empties `array`, and checks that nothing else refers to the lent room.
    fn take_back(&mut self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(lent) = &mut self.lent else { return Err(nothing_lent()) };
        if let Some(array) = array {
            let root = lent.root.as_ref().map(|root| root.bind(py));
            py.import("thalweg._arrays")?.getattr("released")?.call1((
                array,
                &lent.loan,
                root,
                references(array),
                root.map_or(0, references),
            ))?;
        }
        let root = lent.root.take();
        if let Some(held) = root.filter(|root| references(root.bind(py)) > 1) {
            lent.root = Some(held);
            return Err(still_held());
        }
        if lent.loan.get().is_seen() {
            return Err(still_held());
        }
        Ok(())
    }
}

fn nothing_lent() -> PyErr {
    PyValueError::new_err("no loan is open")
}

fn still_held() -> PyErr {
    PyBufferError::new_err("another array or view of the loan exists: delete it first")
}
