//! What reads the source tree for the tests of this crate: the rules that no compiler checks. A crate of
//! its own, on no other, so that `make lint` need not build the rest.
#![forbid(unsafe_code)]

pub mod circles;
mod modules;
