//! The C ABI: what `include/thalweg.h` declares, function by function.
//!
//! The header is written by hand and is the contract; a test compiles C against it and checks that
//! sizes, offsets and names agree with this crate. No logic of its own: it converts, calls, converts.
//!
//! No panic crosses the border: [`guard::run`] turns one into `TW_INTERNAL`.

mod error;
mod guard;
mod json;
mod kernel;
mod mechanism;
mod moving;
mod profile;
mod text;

pub use error::{Status, TwError};
pub use moving::{TwReport, TwTransferOptions};
pub use profile::TwProfile;

/// Sizes of the structs and offsets of some fields, in the words of C: for the test that compares them
/// with the header's.
#[doc(hidden)]
pub fn layout() -> Vec<(&'static str, usize)> {
    [error::layout(), moving::layout()].concat()
}
