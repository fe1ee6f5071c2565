//! The boundary to C, which converts every panic and failure into a status.
//!
//! **The caller's guarantee.** Every exported function relies on the requirements of `include/thalweg.h`: pointers are
//! null or valid for their purpose, handles come from this library and are not closed, and only one thread at a time
//! uses a handle. [`exported!`] defines the functions that rely on this guarantee. All other functions that need it are
//! `unsafe` and document it. The comment of an exported function names only additional requirements.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CallFailure, TwError, TwStatus};

/// Defines exported functions. A function without a return type gets the argument `error` and returns a [`TwStatus`]; its
/// body returns a `Result`. The bodies may call functions that rely on the caller's guarantee, without an `unsafe` block
/// of their own.
macro_rules! exported {
    (@one [$(#[$meta:meta])*] $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $crate::guard::exported! {
            @raw [$(#[$meta])*] $name($($arg: $type,)* error: *mut $crate::error::TwError)
            -> $crate::error::TwStatus { $crate::guard::run(error, || $body) }
        }
    };
    (@one [$(#[$meta:meta])*] $name:ident($($arg:ident: $type:ty),*) -> $ret:ty $body:block) => {
        $crate::guard::exported! { @raw [$(#[$meta])*] $name($($arg: $type),*) -> $ret $body }
    };
    (@raw [$(#[$meta:meta])*] $name:ident($($arg:ident: $type:ty),*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            #[allow(
                unused_unsafe,
                clippy::multiple_unsafe_ops_per_block,
                reason = "one guarantee covers the whole body"
            )]
            // SAFETY: The caller's guarantee, as described in this module.
            let result = unsafe { $body };
            result
        }
    };
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {
        $($crate::guard::exported! { @one [$(#[$meta])*] $name($($arg: $type),*) $(-> $ret)? $body })*
    };
}
pub(crate) use exported;

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
