//! The boundary to C: converts every panic and failure into a status.
//!
//! **The caller's guarantee.** Every exported function relies on the requirements of
//! `include/thalweg.h`. Pointers are null or valid for their purpose. Handles come from this library and
//! are not closed. Only one thread at a time uses a handle. [`guarded!`] is the place where this crate
//! relies on them; other functions that need them are `unsafe` and say so. The comment of an exported
//! function names only further requirements.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CallFailure, TwError, TwStatus};

/// The body of an exported function. Within it, functions that rely on the caller's guarantee are called
/// without a block of their own.
macro_rules! guarded {
    ($error:expr, $body:block) => {{
        #[allow(
            unused_unsafe,
            clippy::multiple_unsafe_ops_per_block,
            reason = "one guarantee covers the whole body"
        )]
        // SAFETY: The caller's guarantee, see the module.
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
    // Unwind safety: everything that the body changed is dropped or belongs to the caller. No object of
    // this library stays half changed.
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
