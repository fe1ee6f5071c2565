//! Cancellation of work. Between its steps, the worker calls a function that returns `Ok(())` or
//! [`Cancelled`]. It returns [`Cancelled`] to its own caller.

/// The caller cancelled the work. Completed steps are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;
