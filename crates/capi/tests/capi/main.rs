//! Tests of the C API: programs in C, and exchanges with ends in other languages.
#![allow(clippy::unwrap_used)]

mod c;
mod exchange;
mod guides;
mod installed;
mod out_of_memory;
mod support;

use thalweg_c as _;
