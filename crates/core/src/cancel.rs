//! How work is ended before it is done: what works asks between its steps whether to go on, by a
//! function that answers `Ok(())` or [`Cancelled`], and returns that answer to its own caller.

/// The caller does not want the rest. What was done so far stays done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;
