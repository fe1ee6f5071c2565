//! The end that sends.

use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CString;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use thalweg_channel::layout::MOST_CAPACITY;
use thalweg_channel::{Address, Error, Link, Listener, Options, Producer};

use crate::alone::Alone;
use crate::content::{Content, message_of};
use crate::error::{closed, raised};
use crate::header::{Encoding, Layout};
use crate::long::Part;
use crate::memory::{Loan, Ring, references};
use crate::wait::{Meeting, deadline, joined, patiently, rest};

mod batch;

/// Without `capacity` the ring has room for this many arrays of the first one's size, and at least [`LEAST`] bytes.
const AHEAD: usize = 4;
const LEAST: usize = 1 << 20;
/// Longest time until the other end of a link responds: its program may import many modules first.
const STARTS: Duration = Duration::from_secs(600);

/// The sending end of a channel, made by `offer`, `join` or `pair`.
///
/// One thread at a time may use it; another gets a RuntimeError. Closing it is the goodbye: the other side receives
/// what was sent, then nothing more.
#[pyclass(frozen, module = "thalweg")]
pub struct Offer {
    inside: Alone<Inside>,
}

struct Inside {
    state: State,
    making: Making,
    lent: Option<Lent>,
    /// Size in bytes of the message for which room was last requested.
    wanted: usize,
    /// Number of long messages so far; `None` if a message larger than the ring is TooLarge.
    long: Option<u32>,
}

/// Settings for creating a ring.
#[derive(Clone, Copy)]
pub struct Making {
    pub options: Options,
    /// `true` if the caller specified the capacity.
    pub is_sized: bool,
    /// `true` if a message larger than the ring is sent in parts.
    pub in_parts: bool,
}

enum State {
    Listening(Listener),
    /// Connects to the gatherer when the first message is sent.
    Seeking(Address),
    /// A link over which nothing was sent yet.
    Linked(Link),
    /// A handshake, with the state to return to if it fails; that is `Closed` if no other peer can connect.
    Meeting(Meeting<Producer>, Box<State>),
    Open(Ring),
    Closed,
}

struct Lent {
    loan: Py<Loan>,
    /// The numpy array that is the base of all others over the room, if numpy is available.
    root: Option<Py<PyAny>>,
    message: usize,
}

impl Offer {
    fn new(state: State, making: Making) -> Self {
        let long = making.in_parts.then_some(0);
        let inside = Inside { state, making, lent: None, wanted: 0, long };
        Self { inside: Alone::new(inside) }
    }

    pub fn listening(listener: Listener, making: Making) -> Self {
        Self::new(State::Listening(listener), making)
    }

    pub fn seeking(from: Address, making: Making) -> Self {
        Self::new(State::Seeking(from), making)
    }

    pub fn over(link: Link, making: Making) -> Self {
        Self::new(State::Linked(link), making)
    }

    pub fn open(producer: Producer, making: Making) -> Self {
        Self::new(State::Open(Ring::new(producer)), making)
    }

    fn deliver(&self, py: Python<'_>, content: &Content, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.send(py, content, deadline))
    }
}

impl Inside {
    /// Returns the ring. It is created for the first message, when its size is known and the peer has connected.
    fn ring(&mut self, py: Python<'_>, first: usize, deadline: Option<Instant>) -> PyResult<Ring> {
        let mut options = self.making.options;
        if !self.making.is_sized {
            // Includes the frame; the library rounds up.
            options.capacity = LEAST.max(first.saturating_mul(AHEAD).saturating_add(4096)) as u64;
            options.capacity = options.capacity.min(MOST_CAPACITY);
        }
        loop {
            let link = match &mut self.state {
                State::Open(ring) => return Ok(ring.clone()),
                State::Closed => return Err(closed()),
                State::Meeting(meeting, before) => {
                    let opened = meeting.outcome(py, deadline)?;
                    let before = mem::replace(&mut **before, State::Closed);
                    let is_one_of_many = !matches!(before, State::Closed);
                    self.state = before;
                    match opened {
                        Ok(producer) => self.state = State::Open(Ring::new(producer)),
                        // A failure on this side would recur with the next peer.
                        Err(error @ (Error::System { .. } | Error::TooLarge { .. })) => {
                            return Err(raised(py)(error));
                        }
                        // The peer is gone or silent: wait for the next one.
                        Err(_) if is_one_of_many => rest(py, deadline)?,
                        Err(error) => return Err(raised(py)(error)),
                    }
                    continue;
                }
                State::Listening(listener) => {
                    Some(patiently(py, deadline, |until| {
                        match listener.accept_until(Some(until)) {
                            // A peer of another user was rejected: wait for the next one.
                            Err(Error::NotPermitted { .. }) => Err(Error::Timeout),
                            answer => answer,
                        }
                    })?)
                }
                State::Seeking(address) => {
                    Some(patiently(py, deadline, |until| joined(address, until))?)
                }
                State::Linked(_) => None,
            };
            let before = mem::replace(&mut self.state, State::Closed);
            let (link, before) = match (link, before) {
                (Some(link), before) => (link, before),
                (None, State::Linked(link)) => (link, State::Closed),
                _ => return Err(closed()),
            };
            let meet = move |link, until| Producer::open_until(link, &options, Some(until));
            // If several peers may connect, a silent one is dropped soon. The other end of a single link may belong
            // to a process that has yet to start.
            let patience =
                if matches!(before, State::Closed) { STARTS } else { Listener::PATIENCE };
            self.state = match Meeting::begin(py, link, patience, meet) {
                Ok(meeting) => State::Meeting(meeting, Box::new(before)),
                Err(error) => {
                    self.state = before;
                    return Err(error);
                }
            };
        }
    }

    /// Returns the ring for a message of `len` bytes, if no room is lent.
    fn ready(&mut self, py: Python<'_>, len: usize, deadline: Option<Instant>) -> PyResult<Ring> {
        if self.lent.is_some() {
            return Err(PyBufferError::new_err("room is lent: commit it or discard it first"));
        }
        self.wanted = len;
        self.ring(py, len, deadline)
    }

    /// Waits until the ring has room for a message of `len` bytes.
    fn room(&mut self, py: Python<'_>, len: usize, deadline: Option<Instant>) -> PyResult<Ring> {
        let ring = self.ready(py, len, deadline)?;
        let mut producer = ring.producer();
        let waiting = &mut *producer;
        patiently(py, deadline, |until| waiting.loan_until(len, Some(until)).map(drop))?;
        drop(producer);
        Ok(ring)
    }

    /// Sends a message, in parts if it is larger than the ring and may be split.
    fn send(
        &mut self,
        py: Python<'_>,
        content: &Content,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let len = content.message();
        if let Some(before) = self.long.filter(|_| content.may_be_cut()) {
            let largest = self.ring(py, len, deadline)?.producer().largest();
            if len > largest {
                self.long = Some(before.wrapping_add(1));
                return self.send_in_parts(py, content, deadline, (before, largest / AHEAD));
            }
        }
        self.send_one(py, (len, deadline), content.writer(py))
    }

    /// Sends a message of `len` bytes that `write` fills.
    fn send_one(
        &mut self,
        py: Python<'_>,
        (len, deadline): (usize, Option<Instant>),
        write: impl FnOnce(&mut [u8]) + Send,
    ) -> PyResult<()> {
        let ring = self.ready(py, len, deadline)?;
        let mut producer = ring.producer();
        let (producer, mut write) = (&mut *producer, Some(write));
        // Waits, writes and commits in one step without the interpreter lock, as `Take` reads.
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
        content: &Content,
        deadline: Option<Instant>,
        (serial, each): (u32, usize),
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
        let each = each.saturating_sub(Part::HEAD).max(1);
        for at in (0..len).step_by(each) {
            py.check_signals()?;
            let part = Part { serial, total: len, at };
            let bytes = each.min(len - at);
            self.send_one(py, (Part::HEAD + bytes, deadline), |message| {
                let (head, body) = message.split_at_mut(Part::HEAD);
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

#[pymethods]
impl Offer {
    /// Sends an array, or anything else with a buffer, as it is now: one copy, also of what does not lie together.
    /// Waits for the other side and for room.
    #[pyo3(signature = (obj, timeout=None))]
    fn send(&self, py: Python<'_>, obj: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        self.deliver(py, &Content::array(obj)?, timeout)
    }

    /// Sends several arrays, which the other side sees at once, for the price of one: as many at a time as there is room
    /// for. One that is larger than the ring goes in parts, by itself. What cannot be sent is refused before anything is.
    /// After Timeout `moved` says how many were sent.
    #[pyo3(signature = (objs, timeout=None))]
    fn send_all(
        &self,
        py: Python<'_>,
        objs: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        let contents = objs.try_iter()?.map(|object| Content::array(&object?));
        let contents = contents.collect::<PyResult<Vec<_>>>()?;
        self.inside.with(py, |inside| inside.send_all(py, &contents, deadline))
    }

    /// Sends bytes as they are, without a header: for programs in other languages, which read bytes.
    #[pyo3(signature = (data, timeout=None))]
    fn send_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.deliver(py, &Content::bytes(data)?, timeout)
    }

    /// Sends any object that can be pickled, in one message: the memory of its arrays is copied once, as it is, and not
    /// pickled. Waits as `send` does. Who receives it must trust this process: a pickle can run anything there.
    #[pyo3(signature = (obj, timeout=None))]
    fn send_object(
        &self,
        py: Python<'_>,
        obj: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.deliver(py, &Content::object(obj)?, timeout)
    }

    /// Waits for the other side, and makes the ring if there is none yet, without `capacity` for messages like one of
    /// `first` bytes.
    #[pyo3(name = "open", signature = (first=0, timeout=None))]
    fn meet(&self, py: Python<'_>, first: usize, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.ring(py, first, deadline).map(drop))
    }

    /// For event loops, after a send with a timeout of 0 that timed out. True: wait until `fileno()` is readable, then
    /// send again. False: there is room now.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(ring) => ring.producer().arm(inside.wanted).map_err(raised(py)),
            State::Listening(_) | State::Linked(_) => Ok(true),
            _ => Ok(false),
        })
    }

    /// Room in the ring for an array of this shape and dtype, to be written in place: a numpy array, or without numpy a
    /// memoryview, whose dtype is a format of one character. Holds whatever was there before. Waits as `send` does.
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
        let layout =
            layout.ok_or_else(|| PyValueError::new_err("a shape that no array can have"))?;
        let len = message_of(py, &layout)?;
        self.inside.with(py, |inside| {
            let ring = inside.room(py, len, deadline)?;
            let loan = Py::new(py, Loan::of(&ring, layout, len).map_err(raised(py))?)?;
            let shown = arrays.getattr("lent")?.call1((&loan, dtype))?;
            let (array, root): (Py<PyAny>, Option<Py<PyAny>>) = shown.extract()?;
            inside.lent = Some(Lent { loan, root, message: len });
            Ok(array)
        })
    }

    /// Publishes what `empty` lent, without a copy. The array given is released: it is empty afterwards, a memoryview
    /// raises. BufferError while other arrays or views lie over the room, of which nobody but you knows whether they are
    /// still used; without an argument, while any does.
    #[pyo3(signature = (array=None))]
    fn commit(&self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.inside.with(py, |inside| {
            inside.take_back(py, array)?;
            let Some(lent) = inside.lent.take() else { return Err(nothing_lent()) };
            let State::Open(ring) = &inside.state else { return Err(closed()) };
            let committed = || {
                let mut producer = ring.producer();
                producer.try_loan(lent.message)?.ok_or_else(Loan::lost)?.commit()
            };
            committed().map_err(raised(py))
        })
    }

    /// Gives up what `empty` lent; it is not sent. As `commit` otherwise.
    #[pyo3(signature = (array=None))]
    fn discard(&self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.inside.with(py, |inside| {
            inside.take_back(py, array)?;
            inside.lent = None;
            Ok(())
        })
    }

    /// Waits until the other side has received everything and holds none of it, also no array.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            let State::Open(ring) = &inside.state else { return Ok(()) };
            let mut producer = ring.producer();
            let waiting = &mut *producer;
            patiently(py, deadline, |until| waiting.drained_until(Some(until)))
        })
    }

    /// Says goodbye. Where an array of `empty` still lies over the ring, when that is gone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut inside) = self.inside.here()? else { return Ok(()) };
        let state = mem::replace(&mut inside.state, State::Closed);
        let lent = inside.lent.take();
        drop(inside);
        drop(lent);
        py.detach(|| drop(state));
        Ok(())
    }

    /// Messages sent.
    #[getter]
    fn sent(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(ring) => Ok(ring.producer().sent()),
            _ => Ok(0),
        })
    }

    /// The process that receives; None before it has come.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(ring) => {
                let producer = ring.producer();
                Ok(Some(producer.peer().pid))
            }
            _ => Ok(None),
        })
    }

    /// What an event loop polls for reading: before the other side has come the listener's descriptor.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.inside.with(py, |inside| {
            let state = match &inside.state {
                State::Meeting(_, before) => before,
                state => state,
            };
            match state {
                State::Listening(listener) => Ok(listener.as_fd().as_raw_fd()),
                State::Linked(link) => Ok(link.as_fd().as_raw_fd()),
                State::Open(ring) => {
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

impl Inside {
    /// Checks that nothing refers to the lent room; `array` is emptied.
    fn take_back(&mut self, py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(lent) = &mut self.lent else { return Err(nothing_lent()) };
        if let Some(array) = array {
            let root = lent.root.as_ref().map(|root| root.bind(py));
            py.import("thalweg._arrays")?.getattr("released")?.call1((
                array,
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
    PyValueError::new_err("nothing is lent")
}

fn still_held() -> PyErr {
    PyBufferError::new_err(
        "an array or a view still lies over the room that was lent: delete it first",
    )
}
