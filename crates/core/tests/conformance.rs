//! Runs the same tests on every mechanism of the list. No test names a mechanism.
//!
//! Each test moves bytes through the driver, which may fall back from the mechanism to the last
//! resort. The sink must contain exactly the bytes that the report counts, equal to those of the
//! source.
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
