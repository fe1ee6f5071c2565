//! Reads the source tree for the tests of this crate, which check rules that the compiler does not. The crate has no
//! dependencies in the workspace, so that `make lint` need not build the rest.
#![forbid(unsafe_code)]

pub mod circles;
mod modules;
