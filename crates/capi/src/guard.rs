//! The boundary to C: converts every panic and failure into a status.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Failure, Status, TwError};

/// Runs the body of an exported function. Writes a failure to `error` if that is not null.
///
/// # Safety
/// `error` must be null or writable.
pub(crate) unsafe fn run(
    error: *mut TwError,
    body: impl FnOnce() -> Result<(), Failure>,
) -> Status {
    // Unwind safety: everything that the body changed is dropped or belongs to the caller. No object of
    // this library stays half changed.
    let done = catch_unwind(AssertUnwindSafe(body));
    let failure = match done {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(Status::Internal, format!("a defect: {}", words(&*panic))),
    };
    if !error.is_null() {
        // SAFETY: Not null; the caller guarantees the rest.
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
