//! The extension module behind the package `thalweg`, which is documented in `thalweg/__init__.py` and
//! docs/reference/python.md.
//!
//! It has no state of its own. Reading order:
//! - `error` and `wait`
//! - `content`: what is sent; `read`: processing of received messages
//! - `header`, `object`, `long`: formats of the messages of arrays, of objects, and of messages in parts
//! - `memory`: memory shared with Python
//! - `offer` and `take`: the two ends of a channel; `broadcast` and `gather`: ends with several peers
//! - `files`: copies; `fleet`: sharded copies
#![deny(unsafe_code)]

use pyo3::prelude::*;

mod alone;
mod broadcast;
mod content;
mod door;
mod error;
mod files;
mod fleet;
mod gather;
mod header;
mod long;
mod memory;
mod object;
mod offer;
mod open;
mod read;
mod shown;
mod source;
mod take;
mod wait;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::broadcast::Broadcast;
    #[pymodule_export]
    use super::files::{copied, listed};
    #[pymodule_export]
    use super::fleet::{fleet_begin, fleet_left, fleet_status, fleet_stop, fleet_work};
    #[pymodule_export]
    use super::gather::Gather;
    #[pymodule_export]
    use super::memory::{Loan, Message, count::references, memory_available};
    #[pymodule_export]
    use super::object::{object_head, object_parts};
    #[pymodule_export]
    use super::offer::Offer;
    #[pymodule_export]
    use super::open::{
        address, broadcast, gather, join, offer, offer_over, pair, subscribe, take, take_over,
    };
    #[pymodule_export]
    use super::take::Take;
}
