//! Every mechanism of the list against the same questions; no mechanism is named here.
//!
//! The oracle is what was put into the source. Through the driver, with a ladder of the mechanism
//! and the last resort: what the report says must be in the sink, byte for byte and no more.
#![allow(clippy::unwrap_used)]

#[path = "conformance/case.rs"]
mod case;
#[path = "conformance/ends.rs"]
mod ends;
#[path = "conformance/faults.rs"]
mod faults;
#[path = "conformance/large.rs"]
mod large;
#[path = "conformance/odd.rs"]
mod odd;
#[path = "conformance/plain.rs"]
mod plain;
#[path = "conformance/steps.rs"]
mod steps;
