//! The C library's functions for memory: what every program uses, and what `tuned` goes by until it is
//! told better.

#[cfg(not(miri))]
mod c {
    use core::ffi::c_void;

    // Declared here rather than taken from the libc crate: this crate has no dependencies.
    unsafe extern "C" {
        pub fn memcpy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
        pub fn memmove(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
        pub fn memset(dst: *mut c_void, byte: core::ffi::c_int, n: usize) -> *mut c_void;
    }
}

/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // Miri's memcpy takes no pointer that leads nowhere, even for nothing at all; that of every C library
    // does, as the compiler itself expects of it. The other two it does not know.
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        src.copy_to_nonoverlapping(dst, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memcpy(dst.cast(), src.cast(), n);
    }
}

/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        src.copy_to(dst, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memmove(dst.cast(), src.cast(), n);
    }
}

/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
pub unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    #[cfg(miri)]
    // SAFETY: the same contract.
    unsafe {
        dst.write_bytes(byte, n);
    }
    #[cfg(not(miri))]
    // SAFETY: the same contract.
    unsafe {
        c::memset(dst.cast(), byte.into(), n);
    }
}
