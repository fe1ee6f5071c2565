//! The C interface from programs in C, and its ends beside those of other languages.
#![allow(clippy::unwrap_used)]

mod c;
mod exchange;
mod guides;
mod installed;
mod support;

use thalweg_c as _;
