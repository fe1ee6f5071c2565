//! The functions that create the ends of channels.

use pyo3::prelude::*;
use std::path::PathBuf;
use thalweg_channel::{Address, Admit, Link, Listener, Options};

use crate::broadcast::PyBroadcast;
use crate::consumer::{PyConsumer, ReceiveOptions};
use crate::error::raised;
use crate::memory::own_descriptor;
use crate::mpsc::PyMpsc;
use crate::producer::{PyProducer, RingOptions};

/// Size in bytes of a ring that is created before the first message: for `pair`, and for each subscriber of a
/// broadcast.
const EACH: u64 = 8 << 20;

fn options(capacity: Option<u64>, checksums: bool) -> Options {
    let usual = Options::default();
    Options { capacity: capacity.unwrap_or(usual.capacity), checksums, ..usual }
}

fn making(capacity: Option<u64>, checksums: bool, in_parts: bool) -> RingOptions {
    RingOptions { options: options(capacity, checksums), is_sized: capacity.is_some(), in_parts }
}

/// Offers a channel under a name, or at a path if it contains a slash. Each user has separate names. Messages larger than
/// the ring are sent in parts; with `parts=False` they raise TooLarge.
#[pyfunction]
#[pyo3(signature = (name, *, capacity=None, checksums=false, parts=true))]
pub fn offer(
    py: Python<'_>,
    name: &str,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<PyProducer> {
    Ok(PyProducer::listening(listening(py, name)?, making(capacity, checksums, parts)))
}

/// Connects to the channel that is offered under a name.
#[pyfunction]
#[pyo3(signature = (name, *, copy=false, trusted=true, hold=None))]
pub fn take(
    py: Python<'_>,
    name: &str,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<PyConsumer> {
    let manner = ReceiveOptions { copies: copy, hold, ..ReceiveOptions::default() };
    PyConsumer::seeking(py, seeking(py, name)?, Options { trusted, ..Options::default() }, manner)
}

/// Sends to all processes that subscribe under a name. With a `backlog`, it never waits for slow subscribers: it stores up
/// to this many messages for each, and then drops the oldest.
#[pyfunction]
#[pyo3(signature = (name, *, backlog=None, capacity=None, checksums=false))]
pub fn broadcast(
    py: Python<'_>,
    name: &str,
    backlog: Option<usize>,
    capacity: Option<u64>,
    checksums: bool,
) -> PyResult<PyBroadcast> {
    let listener = listening(py, name)?;
    let options = options(Some(capacity.unwrap_or(EACH)), checksums);
    Ok(PyBroadcast::new(listener, options, backlog))
}

/// Subscribes to the broadcast under a name.
#[pyfunction]
#[pyo3(signature = (name, *, copy=false, trusted=true, hold=None))]
pub fn subscribe(
    py: Python<'_>,
    name: &str,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<PyConsumer> {
    let manner = ReceiveOptions { subscribes: true, copies: copy, hold };
    PyConsumer::seeking(py, seeking(py, name)?, Options { trusted, ..Options::default() }, manner)
}

/// Receives from all processes that join under a name. Iterating over the result ends when this many `producers` have
/// connected and left. Without the argument, it never ends.
#[pyfunction]
#[pyo3(signature = (name, *, producers=None, copy=false, trusted=true, hold=None))]
pub fn gather(
    py: Python<'_>,
    name: &str,
    producers: Option<usize>,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<PyMpsc> {
    let listener = listening(py, name)?;
    let options = Options { trusted, ..Options::default() };
    let manner = ReceiveOptions { copies: copy, hold, ..ReceiveOptions::default() };
    PyMpsc::new(py, listener, options, manner, producers)
}

/// Sends to the process that gathers under a name, as one of several producers.
#[pyfunction]
#[pyo3(signature = (name, *, capacity=None, checksums=false, parts=true))]
pub fn join(
    py: Python<'_>,
    name: &str,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<PyProducer> {
    Ok(PyProducer::seeking(seeking(py, name)?, making(capacity, checksums, parts)))
}

fn seeking(py: Python<'_>, name: &str) -> PyResult<Address> {
    Address::parse(name).map_err(raised(py))
}

fn listening(py: Python<'_>, name: &str) -> PyResult<Listener> {
    py.detach(|| Listener::bind(&Address::parse(name)?)).map_err(raised(py))
}

/// Creates both ends of a channel in this process, for two threads.
#[pyfunction]
#[pyo3(signature = (*, capacity=None, checksums=false, parts=true, copy=false, trusted=true, hold=None))]
pub fn pair(
    py: Python<'_>,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<(PyProducer, PyConsumer)> {
    let making = making(Some(capacity.unwrap_or(EACH)), checksums, parts);
    let options = Options { trusted, ..making.options };
    let (producer, consumer) = thalweg_channel::pair(&options).map_err(raised(py))?;
    let manner = ReceiveOptions { copies: copy, hold, ..ReceiveOptions::default() };
    Ok((PyProducer::open(producer, making), PyConsumer::open(py, consumer, options, manner)?))
}

/// Returns the path of the socket of a name.
#[pyfunction]
pub fn address(py: Python<'_>, name: &str) -> PyResult<PathBuf> {
    Ok(seeking(py, name)?.path().to_owned())
}

/// Creates the sending end of a channel over a connected socket, which must be non-blocking. The descriptor is duplicated.
#[pyfunction]
#[pyo3(signature = (socket, *, capacity=None, checksums=false, parts=true))]
pub fn offer_over(
    socket: &Bound<'_, PyAny>,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<PyProducer> {
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(socket.py()))?;
    Ok(PyProducer::over(link, making(capacity, checksums, parts)))
}

/// Creates the receiving end over a connected socket, like `offer_over`. With `subscribes`, it is the end of a broadcast.
#[pyfunction]
#[pyo3(signature = (socket, *, copy=false, trusted=true, hold=None, subscribes=false))]
pub fn take_over(
    socket: &Bound<'_, PyAny>,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
    subscribes: bool,
) -> PyResult<PyConsumer> {
    let py = socket.py();
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(py))?;
    let options = Options { trusted, ..Options::default() };
    PyConsumer::over(py, link, options, ReceiveOptions { subscribes, copies: copy, hold })
}
