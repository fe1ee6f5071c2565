//! The border: no panic and no failure leaves without being written down.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Failure, Status, TwError};

/// Runs the body of an exported function, and writes its failure to `error` if that is not null.
///
/// # Safety
/// `error` is null, or may be written.
pub(crate) unsafe fn run(
    error: *mut TwError,
    body: impl FnOnce() -> Result<(), Failure>,
) -> Status {
    // What the body touched is dropped or the caller's own; nothing of ours is left half done.
    let done = catch_unwind(AssertUnwindSafe(body));
    let failure = match done {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(Status::Internal, format!("a defect: {}", words(&*panic))),
    };
    if !error.is_null() {
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { error.write(TwError::of(&failure)) };
    }
    failure.status
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status() {
        // SAFETY: null is allowed.
        let status = unsafe { run(std::ptr::null_mut(), || panic!("on purpose")) };
        assert_eq!(status, Status::Internal);
    }
}
