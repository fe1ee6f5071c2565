//! `rep movsb` and `rep stosb`: the CPU's microcoded loops. One instruction, with a start-up cost.

use core::arch::asm;
use core::ffi::c_int;

use super::wide::move_sse2;
use crate::row::{ALWAYS, Fill, Kernel};

pub const COPY: Kernel = Kernel {
    name: "rep-movsb",
    summary: "rep movsb; like sse2 if the sink starts inside the source",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
};

pub const FILL: Fill = Fill { name: "rep-stosb", summary: "rep stosb", is_available: ALWAYS, fill };

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: reads and writes exactly `n` bytes upwards (the ABI keeps the direction flag clear).
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") n => _,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            options(nostack, preserves_flags)
        );
    }
    dst
}

/// # Safety
/// The contract of [`Kernel::move_`].
unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if dst.addr().wrapping_sub(src.addr()) < n {
        // SAFETY: guaranteed by the caller. `rep movsb` is not used here: downwards, it moves one byte at a time.
        unsafe { move_sse2(dst, src, n) }
    } else {
        // SAFETY: the sink does not start inside the source, so upwards is correct.
        unsafe { copy(dst, src, n) }
    }
}

/// # Safety
/// The contract of [`Fill::fill`].
unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: writes exactly `n` bytes upwards.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") n => _,
            inout("rdi") dst => _,
            in("al") byte as u8,
            options(nostack, preserves_flags)
        );
    }
    dst
}
