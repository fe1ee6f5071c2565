//! The extension module behind the package `thalweg`: what it does is said in `thalweg/__init__.py` and docs/python.md.
//!
//! It has no state of its own. Reading order: `error` and `wait`, `header` is the form of an array's message,
//! `object` that of an object's, `memory` what Python and we both see, `offer` and `take` the two ends of a channel,
//! `files` the copies.
#![deny(unsafe_code)]

use pyo3::prelude::*;

mod alone;
mod error;
mod files;
mod header;
mod memory;
mod object;
mod offer;
mod open;
mod take;
mod wait;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::files::{copied, listed};
    #[pymodule_export]
    use super::memory::{Loan, Message, count::references, memory_available};
    #[pymodule_export]
    use super::object::{object_head, object_parts};
    #[pymodule_export]
    use super::offer::Offer;
    #[pymodule_export]
    use super::open::{address, offer, offer_over, pair, take, take_over};
    #[pymodule_export]
    use super::take::Take;
}
