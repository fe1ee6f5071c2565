//! The end that receives.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options};
use thalweg_sys::{Errno, io};

use crate::alone::Alone;
use crate::error::{Failure, closed, is_timeout, raised};
use crate::header::Layout;
use crate::long::{Long, Refused, Target};
use crate::memory::Given;
use crate::read::{Come, Piece, Reading, Unread};
use crate::shown::{Shown, ending};
use crate::source::{Next, Source};
use crate::wait::{Meeting, deadline, joined, patiently, rest};

mod batch;

/// The receiving end of a channel, made by `take`, `subscribe` or `pair`. Iterating over it receives until the other
/// side says goodbye; PeerDied if it ended without.
///
/// One thread at a time may use it; another gets a RuntimeError. What was received lives on after it is closed.
#[pyclass(frozen, module = "thalweg")]
pub struct Take {
    inside: Alone<Inside>,
    shown: Shown,
}

/// Treatment of received messages.
#[derive(Clone, Copy, Default)]
pub struct Manner {
    /// `true` if they come from a broadcast.
    pub subscribes: bool,
    /// `true` if they are copied to own memory.
    pub copies: bool,
    /// Number of uncopied messages that may be held before a request for the next one warns.
    pub hold: Option<usize>,
}

struct Inside {
    state: State,
    options: Options,
    subscribes: bool,
    reading: Reading,
    long: Long,
    /// Error of a message behind others, which were returned first.
    late: Option<PyErr>,
}

enum State {
    /// The address of the sender, and the link once connected. Nothing was received over it yet.
    Seeking(Address, Option<Link>),
    /// A link over which nothing was received yet.
    Linked(Link),
    /// A handshake, with the address to connect to again if it fails.
    Meeting(Meeting<Source>, Option<Address>),
    Open(Source),
    Closed,
}

impl Take {
    fn new(py: Python<'_>, state: State, options: Options, manner: Manner) -> PyResult<Self> {
        let shown = Shown::new(py, manner.hold)?;
        let reading = Reading::new(manner.copies, options.trusted);
        let subscribes = manner.subscribes;
        let (long, late) = (Long::default(), None);
        let inside = Inside { state, options, subscribes, reading, long, late };
        Ok(Self { inside: Alone::new(inside), shown })
    }

    pub fn seeking(
        py: Python<'_>,
        from: Address,
        options: Options,
        manner: Manner,
    ) -> PyResult<Self> {
        Self::new(py, State::Seeking(from, None), options, manner)
    }

    pub fn over(py: Python<'_>, link: Link, options: Options, manner: Manner) -> PyResult<Self> {
        Self::new(py, State::Linked(link), options, manner)
    }

    pub fn open(
        py: Python<'_>,
        consumer: Consumer,
        options: Options,
        manner: Manner,
    ) -> PyResult<Self> {
        Self::new(py, State::Open(Source::Ring(Box::new(consumer))), options, manner)
    }

    fn next(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Py<PyAny>> {
        self.shown.check(py)?;
        let read = |reading: &Reading, come: Come<'_, Next<'_>>| reading.array(come);
        let message = self.inside.with(py, |inside| inside.read(py, (deadline, None), read))?;
        let message = message.map_err(|why| unread(py, why))?;
        self.shown.array(py, message)
    }
}

impl Inside {
    /// Returns the ring, after a sender that offers one has connected.
    fn ring(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<&mut Source> {
        let (options, subscribes) = (self.options, self.subscribes);
        loop {
            match &mut self.state {
                State::Open(_) => break,
                State::Closed => return Err(closed()),
                // The sender speaks when it has a message, which may be long after the connection.
                State::Linked(link) => patiently(py, deadline, |until| speaks(link, until))?,
                State::Seeking(address, link) => {
                    if link.is_none() {
                        *link = Some(patiently(py, deadline, |until| joined(address, until))?);
                    }
                    let link = link.as_ref().ok_or_else(closed)?;
                    patiently(py, deadline, |until| speaks(link, until))?;
                }
                State::Meeting(meeting, again) => {
                    let opened = meeting.outcome(py, deadline)?;
                    let again = again.take();
                    self.met(opened, again).map_err(raised(py))?;
                    if matches!(self.state, State::Seeking(..)) {
                        rest(py, deadline)?;
                    }
                    continue;
                }
            }
            let (link, again) = match mem::replace(&mut self.state, State::Closed) {
                State::Linked(link) => (link, None),
                State::Seeking(address, Some(link)) => (link, Some(address)),
                _ => return Err(closed()),
            };
            let meet = move |link, until| Source::open(link, &options, subscribes, until);
            match Meeting::begin(py, link, Listener::PATIENCE, meet) {
                Ok(meeting) => self.state = State::Meeting(meeting, again),
                Err(error) => {
                    self.state = again.map_or(State::Closed, |at| State::Seeking(at, None));
                    return Err(error);
                }
            }
        }
        match &mut self.state {
            State::Open(source) => Ok(source),
            _ => Err(closed()),
        }
    }

    /// Sets the state that follows a handshake.
    fn met(&mut self, opened: Result<Source, Error>, again: Option<Address>) -> Result<(), Error> {
        let (state, met) = match (opened, again) {
            (Ok(source), _) => (State::Open(source), Ok(())),
            // The sender has gone, or already had a receiver: another one may offer under the name.
            (
                Err(Error::Closed { .. } | Error::PeerDied { .. } | Error::Timeout),
                Some(address),
            ) => (State::Seeking(address, None), Ok(())),
            (Err(error), Some(address)) => (State::Seeking(address, None), Err(error)),
            (Err(error), None) => (State::Closed, Err(error)),
        };
        self.state = state;
        met
    }

    /// Waits for the next message and passes it to `read`. A message in parts is reassembled here, or in the target.
    fn read<T: Send>(
        &mut self,
        py: Python<'_>,
        (deadline, target): (Option<Instant>, Option<&Target<'_>>),
        read: impl FnOnce(&Reading, Come<'_, Next<'_>>) -> T + Send,
    ) -> PyResult<T> {
        if let Some(error) = self.late.take() {
            return Err(error);
        }
        let (mut read, mut collected) = (Some(read), false);
        loop {
            if !self.long.is_whole() {
                self.ring(py, deadline)?;
            }
            let State::Open(source) = &mut self.state else { return Err(closed()) };
            let (reading, long) = (&self.reading, &mut self.long);
            let mut made = |come: Come<'_, Next<'_>>| {
                let read = read.take().expect("a look that has read is the last");
                Looked::Read(read(reading, come))
            };
            // Runs in one step, because releasing and taking the interpreter lock costs as much as a short message.
            let looked = patiently(py, deadline, |until| {
                if long.is_whole() {
                    return Ok(made(Come::InParts(long)));
                }
                let why = match source.receive(until) {
                    Ok(next) => {
                        let taken = long.take(&next, &reading.pool, target);
                        return Ok(taken.map_or_else(|| made(Come::InRing(next)), Looked::Part));
                    }
                    Err(why) => why,
                };
                let is_held_up = matches!(why, Error::Timeout) && source.holds_up()?;
                if is_held_up { Ok(Looked::HeldUp) } else { Err(why) }
            })?;
            match looked {
                Looked::Read(found) => return Ok(found),
                Looked::Part(taken) => {
                    py.check_signals()?;
                    taken.map_err(|why| refused(py, why))?;
                    collected = false;
                }
                Looked::HeldUp => {
                    py.check_signals()?;
                    if !collected {
                        // Unreachable arrays may be kept alive by a reference cycle.
                        py.import("gc")?.call_method0("collect")?;
                        collected = true;
                    } else if threads(py)? == 1 {
                        return Err(held_up(py, source.held()));
                    } else if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(raised(py)(Error::Timeout));
                    }
                }
            }
        }
    }
}

/// The result of one check of the ring.
enum Looked<T> {
    Read(T),
    /// A part of a longer message was taken; or the reason why it is invalid.
    Part(Result<(), Refused>),
    /// The sender waits for messages that are held here.
    HeldUp,
}

#[pymethods]
impl Take {
    /// The next array; waits for it. PeerDied or Closed when all was received and the other side is gone. TooLarge if it can
    /// never come, since arrays that are still in use take all of the ring and no other thread could let go of them.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.next(py, deadline(timeout)?)
    }

    /// The next array if there is one now, else None.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.is_ready(py)? {
            return Ok(None);
        }
        match self.next(py, Some(Instant::now())) {
            Err(error) if is_timeout(py, &error) => Ok(None),
            next => next.map(Some),
        }
    }

    /// All arrays that are there now, one to `most`; waits for the first. What is wrong with others the next call says.
    #[pyo3(signature = (most=None, timeout=None))]
    fn receive_all(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        self.all(py, most.unwrap_or(usize::MAX), deadline(timeout)?)
    }

    /// Whether there is a message now. As `receive`, PeerDied or Closed when all was received and the other side is gone.
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            // In other states a call has to connect first.
            let State::Open(source) = &mut inside.state else { return Ok(true) };
            if inside.long.is_whole() || inside.late.is_some() {
                return Ok(true);
            }
            let found = source.try_next().map_err(raised(py))?;
            Ok(found.map(Piece::leave).is_some())
        })
    }

    /// The next object that was sent by `send_object`; waits for it. Its arrays are read-only views of the message, which
    /// they keep, as those of `receive`; with `copy=True` they are own memory. What unpickling raises comes through, and the
    /// message was received then. NotPermitted with `trusted=False`.
    #[pyo3(signature = (timeout=None))]
    fn receive_object(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        self.shown.check(py)?;
        let read = |reading: &Reading, come: Come<'_, Next<'_>>| reading.object(come);
        let object = self.inside.with(py, |inside| {
            may_unpickle(py, &inside.reading)?;
            inside.read(py, (deadline, None), read)
        })?;
        let object = object.map_err(|why| unread(py, why))?;
        self.shown.object(py, object)
    }

    /// Waits for the other side, and for the ring that it makes when it has something to send.
    #[pyo3(name = "open", signature = (timeout=None))]
    fn meet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.ring(py, deadline).map(drop))
    }

    /// Copies the next array into this one, of the same type and shape, and returns it. If it does not fit, TypeError or
    /// ValueError, and the message stays the next one. One that is larger than its ring is copied as it comes: after a
    /// Timeout or another error the array may have a part of it.
    #[pyo3(signature = (into, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        let given = Given::get(into, true)?;
        let room = given.layout();
        let read = |_: &Reading, come: Come<'_, Next<'_>>| {
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
        let target = room.as_ref().map(|layout| Target { given: &given, layout });
        let copied = self.inside.with(py, |inside| {
            let copied = inside.read(py, (deadline, target.as_ref()), read);
            let left = inside.long.leave_array(&given, &inside.reading.pool);
            left.map_err(|why| refused(py, why)).and(copied)
        })?;
        match copied {
            Ok(()) => Ok(into.clone().unbind()),
            Err(Ok(layout)) => Err(layout.unlike(room.as_ref())),
            Err(Err(why)) => Err(unread(py, Unread::Corrupt(why))),
        }
    }

    /// The next message as bytes, whatever is in it: also those of programs in other languages.
    #[pyo3(signature = (timeout=None))]
    fn receive_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let deadline = deadline(timeout)?;
        let read = |reading: &Reading, come: Come<'_, Next<'_>>| reading.bytes(come);
        let bytes = self.inside.with(py, |inside| inside.read(py, (deadline, None), read))?;
        let (mut room, skip, len) = bytes.map_err(|why| unread(py, why))?;
        Ok(PyBytes::new(py, &room.bytes(skip + len)[skip..]))
    }

    /// For event loops. True: wait until `fileno()` is readable, then `try_receive`. False: receive at once.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| match &mut inside.state {
            State::Open(source) => source.arm().map_err(raised(py)),
            State::Linked(_) | State::Seeking(_, Some(_)) => Ok(true),
            _ => Ok(false),
        })
    }

    /// What an event loop polls for reading, after `arm`. ValueError before somebody was found who offers.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(source) => Ok(source.as_fd().as_raw_fd()),
            State::Linked(link) | State::Seeking(_, Some(link)) => Ok(link.as_fd().as_raw_fd()),
            _ => Err(closed()),
        })
    }

    /// Says goodbye.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut inside) = self.inside.here()? else { return Ok(()) };
        let state = mem::replace(&mut inside.state, State::Closed);
        drop(inside);
        py.detach(|| drop(state));
        Ok(())
    }

    /// Messages received.
    #[getter]
    fn received(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(source) => Ok(source.received()),
            _ => Ok(0),
        })
    }

    /// Messages that the broadcast dropped for this end, since it was too slow, between those received.
    #[getter]
    fn missed(&self, py: Python<'_>) -> PyResult<u64> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(source) => Ok(source.missed()),
            _ => Ok(0),
        })
    }

    /// The process that sends; None before it was found.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(source) => Ok(Some(source.peer())),
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

/// Waits until the peer has sent something, or is gone.
fn speaks(link: &Link, until: Instant) -> Result<(), Error> {
    let left = until.saturating_duration_since(Instant::now());
    match io::wait_readable(link, Some(left)) {
        Ok(true) => Ok(()),
        Ok(false) | Err(Errno::INTR) => Err(Error::Timeout),
        Err(errno) => Err(Error::System { call: "poll", errno }),
    }
}

/// Returns NotPermitted if the sender is not trusted.
pub fn may_unpickle(py: Python<'_>, reading: &Reading) -> PyResult<()> {
    if reading.trusted {
        return Ok(());
    }
    let why = "with trusted=False nothing is unpickled: a pickle can run anything in this process";
    Err(Failure::new("NotPermitted", why).raised(py))
}

/// Converts the error of a part of a message.
pub fn refused(py: Python<'_>, why: Refused) -> PyErr {
    match why {
        Refused::TooLarge(why) => Failure::new("TooLarge", why),
        Refused::Corrupt(why) => Failure::new("Corrupt", why),
    }
    .raised(py)
}

/// Converts the error of a message that was left.
pub fn unread(py: Python<'_>, why: Unread) -> PyErr {
    match why {
        Unread::Corrupt(why) => {
            let words = format!("{why}; it stays the next message: receive_bytes takes any");
            Failure::new("Corrupt", words)
        }
        Unread::NoMemory(bytes) => {
            let words = format!("no memory for the {bytes} bytes of it; it stays the next message");
            Failure::new("TooLarge", words)
        }
    }
    .raised(py)
}

/// Returns the number of Python threads that are not ours: each may release an array while this one waits.
fn threads(py: Python<'_>) -> PyResult<usize> {
    py.import("thalweg._threads")?.call_method0("others")?.extract()
}

fn held_up(py: Python<'_>, held: usize) -> PyErr {
    let words = format!(
        "the sender waits for room, which {held} received arrays hold that are still in use, and no other thread is there \
         to let go of them: delete some (`del`), keep copies (`array.copy()`, take(..., copy=True)), or offer with a larger \
         `capacity`; nothing is lost"
    );
    Failure::new("TooLarge", words).raised(py)
}
