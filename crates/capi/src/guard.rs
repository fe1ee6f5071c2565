//! The boundary to C, which converts every panic and failure into a status.
//!
//! **The caller's guarantee.** Every exported function relies on the requirements of `include/thalweg.h`: pointers are
//! null or valid for their purpose, handles come from this library and are not closed, and only one thread at a time
//! uses a handle. [`guarded!`] marks the functions that rely on this guarantee. All other functions that need it are
//! `unsafe` and document it. The comment of an exported function names only additional requirements.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CallFailure, TwError, TwStatus};

/// Runs the body of an exported function. The body may call functions that rely on the caller's guarantee, without an
/// `unsafe` block of its own.
macro_rules! guarded {
    ($error:expr, $body:block) => {{
        #[allow(
            unused_unsafe,
            clippy::multiple_unsafe_ops_per_block,
            reason = "one guarantee covers the whole body"
        )]
        // SAFETY: The caller's guarantee, as described in this module.
        let status = unsafe { $crate::guard::run($error, || $body) };
        status
    }};
}
pub(crate) use guarded;

/// Runs the body of an exported function. Writes a failure to `error` if that is not null.
///
/// # Safety
/// `error` must be null or writable.
pub(crate) unsafe fn run(
    error: *mut TwError,
    body: impl FnOnce() -> Result<(), CallFailure>,
) -> TwStatus {
    // Unwind safety: a panic leaves no object of this library half changed. Everything that the body changes is either
    // dropped or belongs to the caller.
    let done = catch_unwind(AssertUnwindSafe(body));
    let failure = match done {
        Ok(Ok(())) => return TwStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            CallFailure::new(TwStatus::Internal, format!("internal error: {}", words(&*panic)))
        }
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
        assert_eq!(status, TwStatus::Internal);
    }
}
