//! The end that receives.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Link, Options};
use thalweg_sys::{Errno, io};

use crate::alone::Alone;
use crate::error::{Failure, raised};
use crate::header::{BEFORE, Layout};
use crate::memory::{Given, Message, Pool};
use crate::object::Parts;
use crate::offer::closed;
use crate::wait::{deadline, met, patiently};

/// Between two looks whether somebody offers by now.
const AGAIN: Duration = Duration::from_millis(10);

/// The receiving end of a channel, made by `take` or `pair`. Iterating over it receives until the other
/// side says goodbye; PeerDied if it ended without.
///
/// One thread at a time may use it; another gets a RuntimeError. What was received lives on after it is closed.
#[pyclass(frozen, module = "thalweg")]
pub struct Take {
    inside: Alone<Inside>,
    /// What makes an array of a message.
    shown: Py<PyAny>,
    /// What warns of messages that are in use for long.
    holding: Option<Py<PyAny>>,
}

/// What becomes of messages that are received.
#[derive(Clone, Copy, Default)]
pub struct Manner {
    /// They are copied to own memory.
    pub copies: bool,
    /// As many may be in use, of those that are not, before who asks for the next is warned.
    pub hold: Option<usize>,
}

struct Inside {
    state: State,
    options: Options,
    pool: Pool,
    copies: bool,
}

enum State {
    Seeking(Address),
    /// A link over which nothing came yet; gone while the handshake runs.
    Linked(Option<Link>),
    Open(Box<Consumer>),
    Closed,
}

impl Take {
    fn new(py: Python<'_>, state: State, options: Options, manner: Manner) -> PyResult<Self> {
        let shown = py.import("thalweg._arrays")?.getattr("shown")?.unbind();
        let holding = |most| py.import("thalweg._holding")?.getattr("Holding")?.call1((most,));
        let holding = manner.hold.map(holding).transpose()?.map(Bound::unbind);
        let inside = Inside { state, options, pool: Pool::default(), copies: manner.copies };
        Ok(Self { inside: Alone::new(inside), shown, holding })
    }

    pub fn seeking(
        py: Python<'_>,
        from: Address,
        options: Options,
        manner: Manner,
    ) -> PyResult<Self> {
        Self::new(py, State::Seeking(from), options, manner)
    }

    pub fn over(py: Python<'_>, link: Link, options: Options, manner: Manner) -> PyResult<Self> {
        Self::new(py, State::Linked(Some(link)), options, manner)
    }

    pub fn open(
        py: Python<'_>,
        consumer: Consumer,
        options: Options,
        manner: Manner,
    ) -> PyResult<Self> {
        Self::new(py, State::Open(Box::new(consumer)), options, manner)
    }

    fn next(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Py<PyAny>> {
        self.check(py)?;
        let message = Py::new(py, self.inside.with(py, |inside| inside.array(py, deadline))?)?;
        self.note(py, &message)?;
        self.shown.call1(py, (message,))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.holding.as_ref().map_or(Ok(()), |all| all.call_method0(py, "check").map(drop))
    }

    fn note(&self, py: Python<'_>, message: &Py<Message>) -> PyResult<()> {
        self.holding
            .as_ref()
            .map_or(Ok(()), |all| all.call_method1(py, "note", (message,)).map(drop))
    }
}

impl Inside {
    /// The ring, when somebody has come who offers one.
    fn ring(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<&mut Consumer> {
        let options = self.options;
        loop {
            let link = match &mut self.state {
                State::Open(_) => break,
                State::Closed => return Err(closed()),
                State::Linked(link) => {
                    let waiting = link.as_ref().ok_or_else(closed)?;
                    patiently(py, deadline, |until| speaks(waiting, until))?;
                    link.take().ok_or_else(closed)?
                }
                State::Seeking(address) => {
                    let link = patiently(py, deadline, |until| joined(address, until))?;
                    // It speaks when it has something to send, which may be long after it was joined.
                    patiently(py, deadline, |until| speaks(&link, until))?;
                    link
                }
            };
            let opened = met(py, link, deadline, move |link, until| {
                Consumer::open_until(link, &options, Some(until))
            })?;
            match opened {
                Ok(consumer) => self.state = State::Open(Box::new(consumer)),
                // It went, or had its consumer: another may offer under the name.
                Err(Error::Closed { .. } | Error::PeerDied { .. } | Error::Timeout)
                    if matches!(self.state, State::Seeking(_)) =>
                {
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(raised(py)(Error::Timeout));
                    }
                    py.detach(|| thread::sleep(AGAIN));
                    py.check_signals()?;
                }
                Err(error) => return Err(raised(py)(error)),
            }
        }
        match &mut self.state {
            State::Open(consumer) => Ok(consumer),
            _ => Err(closed()),
        }
    }

    /// Waits for a message, which stays the next one.
    fn await_one(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<&mut Consumer> {
        let consumer = self.ring(py, deadline)?;
        let mut collected = false;
        loop {
            let come = patiently(py, deadline, |until| {
                match consumer.receive_until(Some(until)).map(mem::forget) {
                    Err(Error::Timeout) if consumer.holds_up()? => Ok(false),
                    waited => waited.map(|()| true),
                }
            })?;
            if come {
                return Ok(consumer);
            }
            py.check_signals()?;
            if !collected {
                // What nobody can reach any more may be held by a cycle.
                py.import("gc")?.call_method0("collect")?;
                collected = true;
            } else if threads(py)? == 1 {
                return Err(held_up(py, consumer.held()));
            } else if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(raised(py)(Error::Timeout));
            }
        }
    }

    fn array(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Message> {
        let (pool, copies) = (self.pool.clone(), self.copies);
        let in_place = !copies && self.options.trusted;
        let consumer = self.await_one(py, deadline)?;
        let half = consumer.largest() / 2;
        let read = py.detach(|| {
            let sample = consumer.try_receive()?.ok_or(Error::Timeout)?;
            match Layout::read(&sample) {
                // Of one that fills more than half of the ring the next could not come while a loop still holds it.
                Ok(layout) if in_place && sample.len() < half => {
                    let skip = layout.offset();
                    Ok(Ok(Message::held(layout, sample.hold(), skip)))
                }
                Ok(layout) => {
                    let elements = sample.get(layout.offset()..).unwrap_or_default();
                    let mut room = pool.room(elements.len());
                    room.bytes(elements.len()).copy_from_slice(elements);
                    Ok(Ok(Message::own(layout, room, (0, copies))))
                }
                Err(why) => {
                    // It stays the next one, for `receive_bytes`.
                    mem::forget(sample);
                    Ok(Err(why))
                }
            }
        });
        read.map_err(raised(py))?.map_err(|why| corrupt(py, &why))
    }

    /// The bytes of an object's message, and where its parts lie.
    fn object(&mut self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<(Message, Parts)> {
        let (pool, copies) = (self.pool.clone(), self.copies);
        if !self.options.trusted {
            let why = "with trusted=False nothing is unpickled: a pickle can run anything in this process";
            return Err(Failure::new("NotPermitted", why).raised(py));
        }
        let consumer = self.await_one(py, deadline)?;
        let half = consumer.largest() / 2;
        let read = py.detach(|| {
            let sample = consumer.try_receive()?.ok_or(Error::Timeout)?;
            let len = sample.len();
            let parts = Parts::read(&sample, len);
            let (parts, layout) = match (parts, Layout::of_bytes(len)) {
                (Ok(parts), Some(layout)) => (parts, layout),
                (parts, _) => {
                    // It stays the next one, for `receive` and `receive_bytes`.
                    mem::forget(sample);
                    return Ok(Err(parts.err().unwrap_or_default()));
                }
            };
            // As of an array. What has no buffers is copied by being unpickled.
            if parts.buffers.is_empty() || !copies && len < half {
                return Ok(Ok((Message::held(layout, sample.hold(), 0), parts)));
            }
            // So that its buffers lie at multiples of 64.
            let mut room = pool.room(BEFORE + len);
            room.bytes(BEFORE + len)[BEFORE..].copy_from_slice(&sample);
            Ok(Ok((Message::own(layout, room, (BEFORE, copies)), parts)))
        });
        read.map_err(raised(py))?.map_err(|why| corrupt(py, &why))
    }
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

    /// Whether there is a message now. As `receive`, PeerDied or Closed when all was received and the other side is gone.
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| {
            // Before that a call has to look for the other side.
            let State::Open(consumer) = &mut inside.state else { return Ok(true) };
            let found = consumer.try_receive().map_err(raised(py))?;
            Ok(found.map(mem::forget).is_some())
        })
    }

    /// The next object that was sent by `send_object`; waits for it. Its arrays are read-only views of the message, which
    /// they keep, as those of `receive`; with `copy=True` they are own memory. What unpickling raises comes through, and the
    /// message was received then. NotPermitted with `trusted=False`.
    #[pyo3(signature = (timeout=None))]
    fn receive_object(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = deadline(timeout)?;
        self.check(py)?;
        let (message, parts) = self.inside.with(py, |inside| inside.object(py, deadline))?;
        let message = Py::new(py, message)?;
        self.note(py, &message)?;
        let loaded = py.import("thalweg._objects")?.getattr("loaded")?;
        Ok(loaded.call1((message, parts.ranges()))?.unbind())
    }

    /// Waits for the other side, and for the ring that it makes when it has something to send.
    #[pyo3(name = "open", signature = (timeout=None))]
    fn meet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| inside.ring(py, deadline).map(drop))
    }

    /// Copies the next array into this one, of the same type and shape, and returns it. If it does not fit, TypeError or
    /// ValueError, and the message stays the next one.
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
        self.inside.with(py, |inside| {
            let consumer = inside.await_one(py, deadline)?;
            let copied = py.detach(|| {
                let sample = consumer.try_receive()?.ok_or(Error::Timeout)?;
                let layout = Layout::read(&sample);
                let answer = match layout {
                    Ok(layout) if room.as_ref().is_some_and(|room| room.holds(&layout)) => {
                        given.copy_from(sample.get(layout.offset()..).unwrap_or_default());
                        return Ok(Ok(()));
                    }
                    Ok(layout) => Ok(layout),
                    Err(why) => Err(why),
                };
                mem::forget(sample);
                Ok(Err(answer))
            });
            match copied.map_err(raised(py))? {
                Ok(()) => Ok(into.clone().unbind()),
                Err(Ok(layout)) => Err(layout.unlike(room.as_ref())),
                Err(Err(why)) => Err(corrupt(py, &why)),
            }
        })
    }

    /// The next message as bytes, whatever is in it: also those of programs in other languages.
    #[pyo3(signature = (timeout=None))]
    fn receive_bytes<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let deadline = deadline(timeout)?;
        self.inside.with(py, |inside| {
            let pool = inside.pool.clone();
            let consumer = inside.await_one(py, deadline)?;
            let read = py.detach(|| {
                let sample = consumer.try_receive()?.ok_or(Error::Timeout)?;
                let mut room = pool.room(sample.len());
                room.bytes(sample.len()).copy_from_slice(&sample);
                Ok((room, sample.len()))
            });
            let (mut room, len) = read.map_err(raised(py))?;
            Ok(PyBytes::new(py, room.bytes(len)))
        })
    }

    /// For event loops. True: wait until `fileno()` is readable, then `try_receive`. False: receive at once.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.inside.with(py, |inside| match &mut inside.state {
            State::Open(consumer) => consumer.arm().map_err(raised(py)),
            State::Linked(Some(_)) => Ok(true),
            _ => Ok(false),
        })
    }

    /// What an event loop polls for reading, after `arm`. ValueError before somebody was found who offers.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(consumer) => Ok(consumer.as_fd().as_raw_fd()),
            State::Linked(Some(link)) => Ok(link.as_fd().as_raw_fd()),
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
            State::Open(consumer) => Ok(consumer.received()),
            _ => Ok(0),
        })
    }

    /// The process that sends; None before it was found.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.inside.with(py, |inside| match &inside.state {
            State::Open(consumer) => Ok(Some(consumer.peer().pid)),
            _ => Ok(None),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.next(py, None).map_err(|error| {
            let closed = py.import("thalweg._errors").and_then(|errors| errors.getattr("Closed"));
            match closed {
                Ok(closed) if error.is_instance(py, &closed) => PyStopIteration::new_err(()),
                _ => error,
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

/// A link to who offers under this name, if that is there before `until`.
fn joined(address: &Address, until: Instant) -> Result<Link, Error> {
    loop {
        match Link::connect_with(address, thalweg_channel::Admit::SameUser, Some(until)) {
            Err(error) if error.is_absent() => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::Timeout);
                }
                thread::sleep(left.min(AGAIN));
            }
            met => return met,
        }
    }
}

/// Whether the other side has something to say, or is gone.
fn speaks(link: &Link, until: Instant) -> Result<(), Error> {
    let left = until.saturating_duration_since(Instant::now());
    match io::wait_readable(link, Some(left)) {
        Ok(true) => Ok(()),
        Ok(false) | Err(Errno::INTR) => Err(Error::Timeout),
        Err(errno) => Err(Error::System { call: "poll", errno }),
    }
}

fn corrupt(py: Python<'_>, why: &str) -> PyErr {
    let words = format!("{why}; it stays the next message: receive_bytes takes any");
    Failure::new("Corrupt", words).raised(py)
}

/// Threads that run Python and are not ours: each may let go of an array while this one waits.
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

fn is_timeout(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PyTimeoutError>(py)
}
