//! The C interface from programs in C, and its ends beside those of other languages.
#![allow(clippy::unwrap_used)]

mod c;
mod exchange;
mod guides;
mod installed;
mod out_of_memory;
mod support;

use thalweg_c as _;
