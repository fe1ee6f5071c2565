//! Cancellation of work. Between its steps, a worker calls a function of its caller, which returns
//! `Ok(())` or [`Cancelled`]. On [`Cancelled`], the worker stops and returns it.

/// The caller cancelled the work. Completed steps are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;
