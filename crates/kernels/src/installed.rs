//! The bands of this process (ranges of sizes with one kernel each): installed once, and never changed afterwards.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering, fence};

use crate::bands::{Bands, UNTUNED, Unfit};

/// A cell that is written once, before any reader can reach it.
pub(crate) struct Once {
    state: AtomicU8,
    bands: UnsafeCell<Bands>,
}

/// The states of [`Once`].
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// The state in which callers use the bands.
const PUBLISHED: u8 = 2;

// SAFETY: only the caller of `put` that wins the exchange writes the cell. It does so before it publishes the end of a first band
// with Release. A reader reaches `get` only after it has read such an end.
unsafe impl Sync for Once {}

impl Once {
    pub(crate) fn put(&self, bands: &Bands) -> Result<(), Unfit> {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.state.compare_exchange(FREE, TAKEN, success, failure).is_err() {
            return Err(Unfit::Installed);
        }
        // SAFETY: only one caller gets here, and no reader exists before it returns.
        unsafe { self.bands.get().write(*bands) };
        Ok(())
    }

    /// Directs callers to the bands from now on.
    pub(crate) fn publish(&self) {
        // PAIRS WITH: the load in `is_published`.
        self.state.store(PUBLISHED, Ordering::Release);
    }

    pub(crate) fn is_published(&self) -> bool {
        // PAIRS WITH: the store in `publish`, so that the bands are visible.
        self.state.load(Ordering::Acquire) == PUBLISHED
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &Bands {
        // PAIRS WITH: the last store of `EntryBand::publish` in `entry`. A caller gets here only after it has read the value of
        // that store.
        fence(Ordering::Acquire);
        // SAFETY: callers get here only beyond the end of a first band, which is published after the only write.
        unsafe { &*self.bands.get() }
    }
}

pub(crate) static INSTALLED: Once =
    Once { state: AtomicU8::new(FREE), bands: UnsafeCell::new(UNTUNED) };

/// Copies sizes beyond the first band. Out of line, so that the code for the first band stays short.
///
/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller; the kernel was available when it was installed.
    unsafe { INSTALLED.get().copies.at(n)(dst, src, n) }
}

/// Moves sizes beyond the first band. Out of line, so that the code for the first band stays short.
///
/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn move_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller; the kernel was available when it was installed.
    unsafe { INSTALLED.get().moves.at(n)(dst, src, n) }
}

/// Fills sizes beyond the first band. Out of line, so that the code for the first band stays short.
///
/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn fill_beyond(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller; the kernel was available when it was installed.
    unsafe { INSTALLED.get().fills.at(n)(dst, byte, n) }
}
