//! Strings and descriptors that C passes or gets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use thalweg_core::failed::Failed;
use thalweg_sys::Errno;

use crate::error::CallFailure;

/// Returns a copy of the text for C, which must free it by `tw_string_free`.
pub(crate) fn handed_out(text: &str) -> *mut c_char {
    // The replacement changes nothing: only JSON is returned this way, and JSON escapes NUL.
    CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw()
}

/// Returns the text with a terminating NUL, or null for `None`. Allocates each text once and never frees it.
pub(crate) fn text_or_null(text: Option<&'static str>) -> *const c_char {
    static MADE: Mutex<BTreeMap<&'static str, &'static CStr>> = Mutex::new(BTreeMap::new());
    let Some(text) = text else { return std::ptr::null() };
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || CString::new(text).unwrap_or_default().into_boxed_c_str();
    made.entry(text).or_insert_with(|| Box::leak(new())).as_ptr()
}

/// Reads an optional string.
///
/// # Safety
/// `text` must be null, or end with NUL and stay unchanged while the result lives.
pub(crate) unsafe fn optional<'t>(text: *const c_char) -> Option<Cow<'t, str>> {
    // SAFETY: Not null, as tested; the caller guarantees the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Reads a required path.
///
/// # Safety
/// The requirements of [`optional`] apply.
pub(crate) unsafe fn path(text: *const c_char, what: &str) -> Result<PathBuf, CallFailure> {
    if text.is_null() {
        return Err(CallFailure::usage(format!("{what}: the pointer is NULL")));
    }
    // SAFETY: Not null; the caller guarantees the rest.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Borrows a descriptor of the caller. Fails if it is negative. If it is not open, the first call
/// on it fails.
///
/// # Safety
/// The descriptor must stay open while the result lives.
pub(crate) unsafe fn descriptor<'f>(fd: c_int, what: &str) -> Result<BorrowedFd<'f>, CallFailure> {
    if fd < 0 {
        return Err(CallFailure::usage(format!("{what}: {fd} is not a descriptor")));
    }
    // SAFETY: Not negative; the caller guarantees that it stays open.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Duplicates a descriptor of the caller. The duplicate is close-on-exec.
///
/// # Safety
/// The descriptor must stay open during the call.
pub(crate) unsafe fn own_descriptor(fd: c_int, what: &str) -> Result<OwnedFd, CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let lent = unsafe { descriptor(fd, what) }?;
    lent.try_clone_to_owned().map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let failed = Failed { what, call: "fcntl", errno, moved: 0 };
        CallFailure { os_error: errno.raw_os_error(), ..CallFailure::usage(failed.to_string()) }
    })
}

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Frees a string that the library returned.
///
/// # Safety
/// `text` must be null, or come from this library and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: It came from `CString::into_raw` in `handed_out`.
        drop(unsafe { CString::from_raw(text) });
    }
}
