//! The memory functions of the C library. The kernel `tuned` uses them until bands (ranges of sizes with one kernel
//! each) are installed.
//!
//! They are not wrapped: a pointer to one of them is the address that the dynamic loader resolved.

#[cfg(not(miri))]
mod c {
    use core::ffi::c_int;

    // Declared here rather than taken from the libc crate: this crate has no dependencies.
    unsafe extern "C" {
        pub fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        pub fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        pub fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8;
    }
}

#[cfg(not(miri))]
pub use c::{memcpy as copy, memmove as move_, memset as fill};

// Miri's `memcpy` rejects dangling pointers even for a size of 0. The compiler requires every C library to accept them. Miri does
// not know the other two functions.
#[cfg(miri)]
mod interpreted {
    use core::ffi::c_int;

    /// # Safety
    /// The contract of [`Kernel::copy`](crate::Kernel::copy).
    pub unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { src.copy_to_nonoverlapping(dst, n) };
        dst
    }

    /// # Safety
    /// The contract of [`Kernel::move_`](crate::Kernel::move_).
    pub unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { src.copy_to(dst, n) };
        dst
    }

    /// # Safety
    /// The contract of [`Fill::fill`](crate::Fill::fill).
    pub unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { dst.write_bytes(byte as u8, n) };
        dst
    }
}

#[cfg(miri)]
pub use interpreted::{copy, fill, move_};
