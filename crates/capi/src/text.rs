//! Strings and descriptors over the border.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use thalweg_core::failed::Failed;
use thalweg_sys::Errno;

use crate::error::Failure;

/// A string to be handed out; the caller frees it with `tw_string_free`.
pub(crate) fn handed_out(text: &str) -> *mut c_char {
    // JSON escapes it; nothing else is handed out.
    CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw()
}

/// A string that may be missing.
///
/// # Safety
/// `text` is null or ends with NUL, and stays as it is while the result lives.
pub(crate) unsafe fn optional<'t>(text: *const c_char) -> Option<Cow<'t, str>> {
    // SAFETY: not null, by the test; the caller vouches for the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// A path that has to be there.
///
/// # Safety
/// As for [`optional`].
pub(crate) unsafe fn path(text: *const c_char, what: &str) -> Result<PathBuf, Failure> {
    if text.is_null() {
        return Err(Failure::usage(format!("{what}: the pointer is NULL")));
    }
    // SAFETY: not null; the caller vouches for the rest.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// A descriptor of the caller's. One that is not open at all is refused by the first call.
///
/// # Safety
/// It stays open while the result lives.
pub(crate) unsafe fn descriptor<'f>(fd: c_int, what: &str) -> Result<BorrowedFd<'f>, Failure> {
    if fd < 0 {
        return Err(Failure::usage(format!("{what}: {fd} is no descriptor")));
    }
    // SAFETY: not -1; the caller keeps it open.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A descriptor of our own for what is behind one of the caller's, closed on exec.
///
/// # Safety
/// It stays open during the call.
pub(crate) unsafe fn own_descriptor(fd: c_int, what: &str) -> Result<OwnedFd, Failure> {
    // SAFETY: the caller's promise.
    let lent = unsafe { descriptor(fd, what) }?;
    lent.try_clone_to_owned().map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let failed = Failed { what, call: "fcntl", errno, moved: 0 };
        Failure { os_error: errno.raw_os_error(), ..Failure::usage(failed.to_string()) }
    })
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Frees a string that was handed out.
///
/// # Safety
/// `text` is null, or came out of this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from `CString::into_raw` in `handed_out`.
        drop(unsafe { CString::from_raw(text) });
    }
}
