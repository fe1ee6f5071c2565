//! The vector loop on aarch64, where NEON is part of the architecture.

use core::arch::aarch64::uint8x16_t;
use core::ffi::c_int;

use super::vector;
use crate::row::{ALWAYS, Fill, Kernel};

pub const COPY: Kernel = Kernel {
    name: "neon",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
};

pub const FILL: Fill = Fill {
    name: "neon",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    fill,
};

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { vector::copy::<uint8x16_t>(dst, src, n) };
    dst
}

/// # Safety
/// The contract of [`Kernel::move_`].
unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { vector::move_::<uint8x16_t>(dst, src, n) };
    dst
}

/// # Safety
/// The contract of [`Fill::fill`].
unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { vector::fill::<uint8x16_t>(dst, byte as u8, n) };
    dst
}
