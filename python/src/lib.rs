//! The extension module behind the package `thalweg`, which is documented in `thalweg/__init__.py` and
//! docs/reference/python.md.
//!
//! It has no state of its own. Reading order:
//! - `error` and `wait`
//! - `content`: messages to be sent; `read`: processing of received messages
//! - `header`, `object`, `long`: formats of the messages of arrays, of objects, and of messages in parts
//! - `memory`: memory shared with Python
//! - `producer` and `consumer`: the two ends of a channel
//! - `many`: code shared by ends with several peers; `broadcast` and `mpsc`: these ends
//! - `files`: copies; `fleet`: sharded copies
#![deny(unsafe_code)]

use pyo3::prelude::*;

mod alone;
mod broadcast;
mod consumer;
mod content;
mod door;
mod error;
mod files;
mod fleet;
mod header;
mod long;
mod many;
mod memory;
mod mpsc;
mod object;
mod open;
mod producer;
mod read;
mod shown;
mod source;
mod wait;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::broadcast::PyBroadcast;
    #[pymodule_export]
    use super::consumer::PyConsumer;
    #[pymodule_export]
    use super::files::{copied, listed};
    #[pymodule_export]
    use super::fleet::{fleet_begin, fleet_left, fleet_status, fleet_stop, fleet_work};
    #[pymodule_export]
    use super::memory::{PyLoan, PyMessage, count::references, memory_available};
    #[pymodule_export]
    use super::mpsc::PyMpsc;
    #[pymodule_export]
    use super::object::{object_head, object_parts};
    #[pymodule_export]
    use super::open::{
        address, broadcast, gather, join, offer, offer_over, pair, subscribe, take, take_over,
    };
    #[pymodule_export]
    use super::producer::PyProducer;
}
