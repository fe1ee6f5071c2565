//! The vector loop on aarch64, where NEON is part of the architecture.

use core::arch::aarch64::uint8x16_t;

use super::vector;
use crate::row::{ALWAYS, Fill, Head, Kernel};
use crate::tuned::first;

pub const COPY: Kernel = Kernel {
    name: "neon",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
    head: Some(Head { least: 0, copy: first_copy, move_: Some(first_move) }),
};

pub const FILL: Fill = Fill {
    name: "neon",
    summary: "16-byte vectors: overlapping ends, aligned main loop",
    is_available: ALWAYS,
    fill,
};

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { vector::copy::<uint8x16_t>(dst, src, n) };
}

/// # Safety
/// The contract of [`Kernel::move_`].
unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { vector::move_::<uint8x16_t>(dst, src, n) };
}

first!(first_copy, vector::copy::<uint8x16_t>, copy_beyond);
first!(first_move, vector::move_::<uint8x16_t>, move_beyond);

/// # Safety
/// The contract of [`Fill::fill`].
unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { vector::fill::<uint8x16_t>(dst, byte, n) };
}
