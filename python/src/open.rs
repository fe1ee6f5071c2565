//! The functions that make the ends of channels.

use pyo3::prelude::*;
use std::path::PathBuf;
use thalweg_channel::{Address, Admit, Link, Listener, Options};

use crate::error::raised;
use crate::memory::own_descriptor;
use crate::offer::Offer;
use crate::take::{Manner, Take};

/// How a ring of `pair` is made, whose size cannot wait for the first message.
const PAIR: u64 = 8 << 20;

fn options(capacity: Option<u64>, checksums: bool) -> Options {
    let usual = Options::default();
    Options { capacity: capacity.unwrap_or(usual.capacity), checksums, ..usual }
}

/// Offers a channel under a name of this user's, or at a path with a slash.
#[pyfunction]
#[pyo3(signature = (name, *, capacity=None, checksums=false))]
pub fn offer(
    py: Python<'_>,
    name: &str,
    capacity: Option<u64>,
    checksums: bool,
) -> PyResult<Offer> {
    let listener = py.detach(|| Listener::bind(&Address::parse(name)?)).map_err(raised(py))?;
    Ok(Offer::listening(listener, options(capacity, checksums), capacity.is_some()))
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
    let address = Address::parse(name).map_err(raised(py))?;
    let options = Options { trusted, ..Options::default() };
    Take::seeking(py, address, options, Manner { copies: copy, hold })
}

/// Both ends of a channel in this process, for two threads.
#[pyfunction]
#[pyo3(signature = (*, capacity=None, checksums=false, copy=false, trusted=true, hold=None))]
pub fn pair(
    py: Python<'_>,
    capacity: Option<u64>,
    checksums: bool,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<(Offer, Take)> {
    let options = Options { trusted, ..options(Some(capacity.unwrap_or(PAIR)), checksums) };
    let (producer, consumer) = thalweg_channel::pair(&options).map_err(raised(py))?;
    let manner = Manner { copies: copy, hold };
    Ok((Offer::open(producer, options), Take::open(py, consumer, options, manner)?))
}

/// Where who offers a name listens.
#[pyfunction]
pub fn address(py: Python<'_>, name: &str) -> PyResult<PathBuf> {
    Ok(Address::parse(name).map_err(raised(py))?.path().to_owned())
}

/// The sending end of a channel over a connected socket, which must not block and of which it makes its own descriptor.
#[pyfunction]
#[pyo3(signature = (socket, *, capacity=None, checksums=false))]
pub fn offer_over(
    socket: &Bound<'_, PyAny>,
    capacity: Option<u64>,
    checksums: bool,
) -> PyResult<Offer> {
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(socket.py()))?;
    Ok(Offer::over(link, options(capacity, checksums), capacity.is_some()))
}

/// The receiving end, as `offer_over`.
#[pyfunction]
#[pyo3(signature = (socket, *, copy=false, trusted=true, hold=None))]
pub fn take_over(
    socket: &Bound<'_, PyAny>,
    copy: bool,
    trusted: bool,
    hold: Option<usize>,
) -> PyResult<Take> {
    let py = socket.py();
    let link = Link::over(own_descriptor(socket)?, Admit::SameUser).map_err(raised(py))?;
    let options = Options { trusted, ..Options::default() };
    Take::over(py, link, options, Manner { copies: copy, hold })
}
