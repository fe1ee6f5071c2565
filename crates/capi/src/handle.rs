//! Handles, which give C access to objects of this library. Also checks the pointers that C passes, as far as possible.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thalweg_sys::fork::ForkMark;

use crate::error::CallFailure;
use crate::guard;

/// A value that is opaque to C. The header requires that only one thread at a time uses a handle.
#[derive(Debug)]
pub struct Handle<T> {
    /// `true` during a call. Detects the usual misuse, in which a second thread calls while the first one waits. An
    /// ordinary load and store are enough for that, and they cost correct callers nothing.
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

/// Clears `busy` at the end of a call, even after a panic.
struct CallInProgress<'h>(&'h AtomicBool);

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Allocates a handle, which C must close.
pub(crate) fn hand_out<T>(value: T) -> *mut Handle<T> {
    Box::into_raw(Box::new(Handle { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }))
}

/// Calls `body` with the value of a handle. Fails if the handle is null or another call uses it.
///
/// # Safety
/// `handle` must be null, or come from [`hand_out`] and not be closed. No other thread may use it.
pub(crate) unsafe fn with<T, R>(
    handle: *const Handle<T>,
    what: &str,
    body: impl FnOnce(&mut T) -> Result<R, CallFailure>,
) -> Result<R, CallFailure> {
    // SAFETY: Null or alive, as the caller guarantees.
    let handle = unsafe { handle.as_ref() }.ok_or_else(|| is_null(what))?;
    let _busy = enter(handle, what)?;
    // SAFETY: The caller guarantees that no other thread uses the handle, and `enter` refuses nested calls.
    body(unsafe { &mut *handle.value.get() })
}

fn enter<'h, T>(handle: &'h Handle<T>, what: &str) -> Result<CallInProgress<'h>, CallFailure> {
    if handle.busy.load(Relaxed) {
        let message =
            format!("{what}: another thread is using it; use it from one thread at a time");
        return Err(CallFailure::usage(message));
    }
    handle.busy.store(true, Relaxed);
    Ok(CallInProgress(&handle.busy))
}

/// Takes the value out of the handle at `place`, frees the handle, and sets `place` to null.
///
/// # Safety
/// `place` must be null, or readable and writable and contain a handle that satisfies [`with`].
pub(crate) unsafe fn take<T>(place: *mut *mut Handle<T>, what: &str) -> Result<T, CallFailure> {
    // SAFETY: Null or valid, as the caller guarantees.
    let place = unsafe { place.as_mut() }.ok_or_else(|| is_null(what))?;
    // SAFETY: As above.
    let handle = unsafe { place.as_ref() }.ok_or_else(|| is_null(what))?;
    drop(enter(handle, what)?);
    let handle = std::mem::replace(place, null_mut());
    // SAFETY: The handle came from `hand_out`, and no pointer to it is left.
    Ok(unsafe { Box::from_raw(handle) }.value.into_inner())
}

/// Takes the value out of the handle at `from`, for a function that stores a result at `to`. If one pointer is invalid,
/// the other is still handled: `to` is set to `none`, or the handle is consumed. `names` are the names of the two
/// arguments in error messages.
///
/// # Safety
/// The requirements of [`take`] and [`result`] apply.
pub(crate) unsafe fn exchange<'p, T, U: Copy>(
    from: *mut *mut Handle<T>,
    to: *mut U,
    names: [&str; 2],
    none: U,
) -> Result<(T, &'p mut U), CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let to = unsafe { result(to, names[1], none) };
    // SAFETY: Guaranteed by the caller.
    let value = unsafe { take(from, names[0]) }?;
    Ok((value, to?))
}

/// Takes the value out of the handle at `from`, calls `open` with it, and stores a handle of the result at `to`.
///
/// # Safety
/// The requirements of [`exchange`] apply.
pub(crate) unsafe fn open<T, U>(
    from: *mut *mut Handle<T>,
    to: *mut *mut Handle<U>,
    names: [&str; 2],
    open: impl FnOnce(T) -> Result<U, CallFailure>,
) -> Result<(), CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let (value, to) = unsafe { exchange(from, to, names, null_mut()) }?;
    *to = hand_out(open(value)?);
    Ok(())
}

/// Calls `make`, and stores a handle of the result at `to`.
///
/// # Safety
/// The requirements of [`place`] apply.
pub(crate) unsafe fn create<T>(
    to: *mut *mut Handle<T>,
    what: &str,
    make: impl FnOnce() -> Result<T, CallFailure>,
) -> Result<(), CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let to = unsafe { place(to, what) }?;
    *to = hand_out(make()?);
    Ok(())
}

/// Drops the value of a handle, and frees the handle. Null is allowed. If a call of another thread uses the handle,
/// leaks both, because freeing memory in use would be worse.
///
/// # Safety
/// The requirements of [`with`] apply. The handle must not be used again.
pub(crate) unsafe fn close<T>(handle: *mut Handle<T>) {
    let body = || {
        // SAFETY: Null or alive, as the caller guarantees.
        let Some(still) = (unsafe { handle.as_ref() }) else { return Ok(()) };
        drop(enter(still, "")?);
        // SAFETY: The handle came from `hand_out`, and is not used again.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    };
    // SAFETY: `error` is null, which is allowed.
    unsafe { guard::run(null_mut(), body) };
}

/// Sets the output location of a new handle to null, and returns the location.
///
/// # Safety
/// `place` must be null, or writable while the result lives.
pub(crate) unsafe fn place<'p, T>(
    place: *mut *mut T,
    what: &str,
) -> Result<&'p mut *mut T, CallFailure> {
    // SAFETY: Guaranteed by the caller.
    unsafe { result(place, what, null_mut()) }
}

/// Sets an output location to `none`, which is its value after a failure, and returns the location. A function with
/// several output locations sets all of them before it returns the failure of one.
///
/// # Safety
/// The requirements of [`place`] apply.
pub(crate) unsafe fn result<'p, T: Copy>(
    place: *mut T,
    what: &str,
    none: T,
) -> Result<&'p mut T, CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let place = unsafe { optional_result(place, none) };
    place.ok_or_else(|| CallFailure::usage(format!("{what}: the output pointer is NULL")))
}

/// Like [`result`], for an output that the caller may not want: `None` if `place` is null.
///
/// # Safety
/// The requirements of [`place`] apply.
pub(crate) unsafe fn optional_result<'p, T: Copy>(place: *mut T, none: T) -> Option<&'p mut T> {
    if place.is_null() {
        return None;
    }
    // Write before borrowing, because C may not have initialised the location.
    // SAFETY: Not null; the caller guarantees the rest.
    unsafe { place.write(none) };
    // SAFETY: As above.
    Some(unsafe { &mut *place })
}

/// Returns bytes that the caller lends. Fails if `from` is null, unless `length` is 0.
///
/// # Safety
/// Unless `length` is 0 or `from` is null, the bytes must be readable, and unchanged while the result lives.
pub(crate) unsafe fn bytes<'b>(
    from: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'b [u8], CallFailure> {
    if !check_length(from, length, what)? {
        return Ok(&[]);
    }
    // SAFETY: Neither null nor too long; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), length) })
}

/// Returns writable memory that the caller lends. Fails if `into` is null, unless `length` is 0.
///
/// # Safety
/// Unless `length` is 0 or `into` is null, the bytes must be writable, and not used elsewhere while the result lives.
pub(crate) unsafe fn room<'b>(
    into: *mut c_void,
    length: usize,
    what: &str,
) -> Result<&'b mut [u8], CallFailure> {
    if !check_length(into, length, what)? {
        return Ok(&mut []);
    }
    // SAFETY: Neither null nor too long; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), length) })
}

/// Returns `false` if the length is 0. Otherwise fails if the pointer is null or the length is invalid.
fn check_length(start: *const c_void, length: usize, what: &str) -> Result<bool, CallFailure> {
    match length {
        0 => Ok(false),
        _ if start.is_null() => Err(is_null(what)),
        _ if isize::try_from(length).is_err() => {
            Err(CallFailure::usage(format!("{what}: {length} bytes exceed the address space")))
        }
        _ => Ok(true),
    }
}

pub(crate) fn is_null(what: &str) -> CallFailure {
    CallFailure::usage(format!("{what}: the pointer is NULL"))
}

/// A value that belongs to the process that created it. A forked child shares the objects to which the value writes.
/// Therefore the child gets an error, and closing the handle there leaks the value.
#[derive(Debug)]
pub struct OwnedHere<T> {
    value: Option<T>,
    mark: ForkMark,
}

impl<T> OwnedHere<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), mark: ForkMark::here() }
    }

    pub(crate) fn get(&mut self) -> Result<&mut T, CallFailure> {
        let forked = thalweg_channel::Error::Forked { owner: self.mark.process() };
        self.value.as_mut().filter(|_| self.mark.is_here()).ok_or_else(|| forked.into())
    }
}

impl<T> Drop for OwnedHere<T> {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TwStatus;

    #[test]
    fn a_call_within_a_call_is_refused_and_the_next_one_is_not() {
        let handle = hand_out(1);
        // SAFETY: The handle is alive, and only this thread uses it.
        let within = || unsafe { with(handle, "number", |_| Ok(())) };
        // SAFETY: As above.
        let refused = unsafe { with(handle, "number", |_| Ok(within().map_err(|f| f.status))) };
        assert!(matches!(refused, Ok(Err(TwStatus::Usage))), "{refused:?}");
        assert!(within().is_ok());
        // SAFETY: As above; the handle is not used again.
        unsafe { close(handle) };
    }

    #[test]
    fn null_is_an_error_and_what_was_taken_is_null() {
        // SAFETY: null is allowed.
        let refused = unsafe { with(std::ptr::null::<Handle<u8>>(), "number", |_| Ok(())) };
        assert_eq!(refused.unwrap_err().message, "number: the pointer is NULL");
        let mut handle = hand_out(7);
        // SAFETY: A valid location with a handle in it.
        assert_eq!(unsafe { take(&raw mut handle, "number") }.unwrap(), 7);
        assert!(handle.is_null());
        // SAFETY: A valid location with null in it.
        assert!(unsafe { take(&raw mut handle, "number") }.is_err());
        // SAFETY: null is allowed.
        unsafe { close(handle) };
    }

    #[test]
    fn an_exchange_that_fails_leaves_null_in_both_places() {
        let (mut from, mut to) = (hand_out(7), hand_out(8));
        let not_there = null_mut::<*mut Handle<i32>>();
        let names = ["number", "result"];
        // SAFETY: A valid location with a handle in it, and null, which is refused.
        assert!(unsafe { exchange(&raw mut from, not_there, names, null_mut()) }.is_err());
        assert!(from.is_null());
        let old = to;
        // SAFETY: Two valid locations.
        assert!(unsafe { exchange(&raw mut from, &raw mut to, names, null_mut()) }.is_err());
        assert!(to.is_null());
        // SAFETY: Alive, and not used again.
        unsafe { close(old) };
    }

    #[test]
    fn no_bytes_need_no_pointer() {
        // SAFETY: The length is 0.
        assert!(unsafe { bytes(std::ptr::null(), 0, "message") }.unwrap().is_empty());
        // SAFETY: Null is refused.
        assert!(unsafe { bytes(std::ptr::null(), 1, "message") }.is_err());
        // SAFETY: The length is 0.
        assert!(unsafe { room(null_mut(), 0, "room") }.unwrap().is_empty());
    }
}
