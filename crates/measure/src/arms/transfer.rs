//! Transfers by one mechanism, without fallback.

mod alone;
mod peer;
mod whole;

pub use alone::{TunedMechanism, end_of, move_exactly};
pub use peer::{StreamKind, StreamPeer, looked_at, take, write_all};
pub use whole::{Medium, Terms, Whole, WholeArm, create};
