//! The functions that create the ends of channels.

use pyo3::prelude::*;
use std::path::PathBuf;
use thalweg_channel::{Address, Admit, Link, Listener, Options};

use crate::broadcast::Broadcast;
use crate::error::raised;
use crate::gather::Gather;
use crate::memory::own_descriptor;
use crate::offer::{Making, Offer};
use crate::take::{Manner, Take};

/// Size in bytes of a ring that is created before the first message: for `pair`, and for each receiver of a
/// broadcast.
const EACH: u64 = 8 << 20;

fn options(capacity: Option<u64>, checksums: bool) -> Options {
    let usual = Options::default();
    Options { capacity: capacity.unwrap_or(usual.capacity), checksums, ..usual }
}

fn making(capacity: Option<u64>, checksums: bool, in_parts: bool) -> Making {
    Making { options: options(capacity, checksums), is_sized: capacity.is_some(), in_parts }
}

/// Offers a channel under a name of this user's, or at a path with a slash. What is larger than the ring goes through it in
/// `parts`; without, it is TooLarge.
#[pyfunction]
#[pyo3(signature = (name, *, capacity=None, checksums=false, parts=true))]
pub fn offer(
    py: Python<'_>,
    name: &str,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<Offer> {
    Ok(Offer::listening(listening(py, name)?, making(capacity, checksums, parts)))
}

/// Takes what is offered under a name.
#[pyfunction]
#[pyo3(signature = (name, *, copy=false, trusted=true, hold=None))]
pub fn take(
    py: Python<'_>,
    name: &str,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<Take> {
    let manner = Manner { copies: copy, hold, ..Manner::default() };
    Take::seeking(py, seeking(py, name)?, Options { trusted, ..Options::default() }, manner)
}

/// Sends to whoever subscribes under a name. With a `backlog` it never waits: so many messages are kept for each receiver that
/// is too slow, then its oldest is dropped.
#[pyfunction]
#[pyo3(signature = (name, *, backlog=None, capacity=None, checksums=false))]
pub fn broadcast(
    py: Python<'_>,
    name: &str,
    backlog: Option<usize>,
    capacity: Option<u64>,
    checksums: bool,
) -> PyResult<Broadcast> {
    let listener = listening(py, name)?;
    let options = options(Some(capacity.unwrap_or(EACH)), checksums);
    Ok(Broadcast::new(listener, options, backlog))
}

/// Takes what is broadcast under a name.
#[pyfunction]
#[pyo3(signature = (name, *, copy=false, trusted=true, hold=None))]
pub fn subscribe(
    py: Python<'_>,
    name: &str,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<Take> {
    let manner = Manner { subscribes: true, copies: copy, hold };
    Take::seeking(py, seeking(py, name)?, Options { trusted, ..Options::default() }, manner)
}

/// Receives from everybody who joins under a name. Iterating over it ends when `senders` have come and gone; without
/// that, never.
#[pyfunction]
#[pyo3(signature = (name, *, senders=None, copy=false, trusted=true, hold=None))]
pub fn gather(
    py: Python<'_>,
    name: &str,
    senders: Option<usize>,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<Gather> {
    let listener = listening(py, name)?;
    let options = Options { trusted, ..Options::default() };
    let manner = Manner { copies: copy, hold, ..Manner::default() };
    Gather::new(py, listener, options, (manner, senders))
}

/// Sends to who gathers under a name, beside others.
#[pyfunction]
#[pyo3(signature = (name, *, capacity=None, checksums=false, parts=true))]
pub fn join(
    py: Python<'_>,
    name: &str,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<Offer> {
    Ok(Offer::seeking(seeking(py, name)?, making(capacity, checksums, parts)))
}

fn seeking(py: Python<'_>, name: &str) -> PyResult<Address> {
    Address::parse(name).map_err(raised(py))
}

fn listening(py: Python<'_>, name: &str) -> PyResult<Listener> {
    py.detach(|| Listener::bind(&Address::parse(name)?)).map_err(raised(py))
}

/// Both ends of a channel in this process, for two threads.
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
) -> PyResult<(Offer, Take)> {
    let making = making(Some(capacity.unwrap_or(EACH)), checksums, parts);
    let options = Options { trusted, ..making.options };
    let (producer, consumer) = thalweg_channel::pair(&options).map_err(raised(py))?;
    let manner = Manner { copies: copy, hold, ..Manner::default() };
    Ok((Offer::open(producer, making), Take::open(py, consumer, options, manner)?))
}

/// Where who offers a name listens.
#[pyfunction]
pub fn address(py: Python<'_>, name: &str) -> PyResult<PathBuf> {
    Ok(seeking(py, name)?.path().to_owned())
}

/// The sending end of a channel over a connected socket, which must not block and of which it makes its own descriptor.
#[pyfunction]
#[pyo3(signature = (socket, *, capacity=None, checksums=false, parts=true))]
pub fn offer_over(
    socket: &Bound<'_, PyAny>,
    capacity: Option<u64>,
    checksums: bool,
    parts: bool,
) -> PyResult<Offer> {
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(socket.py()))?;
    Ok(Offer::over(link, making(capacity, checksums, parts)))
}

/// The receiving end, as `offer_over`; it `subscribes` to a broadcast, or takes what is offered.
#[pyfunction]
#[pyo3(signature = (socket, *, copy=false, trusted=true, hold=None, subscribes=false))]
pub fn take_over(
    socket: &Bound<'_, PyAny>,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
    subscribes: bool,
) -> PyResult<Take> {
    let py = socket.py();
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(py))?;
    let options = Options { trusted, ..Options::default() };
    Take::over(py, link, options, Manner { subscribes, copies: copy, hold })
}
