//! The bands of this process: installed once, and then there for good.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering, fence};

use crate::bands::{Bands, UNTUNED, Unfit};

/// Written once, before whatever leads to a reader of it.
pub(crate) struct Once {
    state: AtomicU8,
    bands: UnsafeCell<Bands>,
}

/// The states of [`Once`].
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Callers are led to the bands.
const PUBLISHED: u8 = 2;

// SAFETY: the cell is written by the one caller of `put` that takes it, before it publishes with
// Release the end of a first band, which alone leads to `get`.
unsafe impl Sync for Once {}

impl Once {
    pub(crate) fn put(&self, bands: &Bands) -> Result<(), Unfit> {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.state.compare_exchange(FREE, TAKEN, success, failure).is_err() {
            return Err(Unfit::Installed);
        }
        // SAFETY: only one caller gets here, and nobody reads before it returns.
        unsafe { self.bands.get().write(*bands) };
        Ok(())
    }

    /// From now on callers are led to the bands.
    pub(crate) fn publish(&self) {
        // PAIRS WITH: the load in `is_published`.
        self.state.store(PUBLISHED, Ordering::Release);
    }

    pub(crate) fn is_published(&self) -> bool {
        // PAIRS WITH: the store in `publish`: what callers read is there.
        self.state.load(Ordering::Acquire) == PUBLISHED
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &Bands {
        // PAIRS WITH: the last store of `First::publish` in `entry`, by which the caller was led here.
        fence(Ordering::Acquire);
        // SAFETY: only what is behind the end of a first band calls it, which is published after the one write.
        unsafe { &*self.bands.get() }
    }
}

pub(crate) static INSTALLED: Once =
    Once { state: AtomicU8::new(FREE), bands: UnsafeCell::new(UNTUNED) };

/// What is behind the first band. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { INSTALLED.get().copies.at(n)(dst, src, n) }
}

/// What is behind the first band. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn move_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { INSTALLED.get().moves.at(n)(dst, src, n) }
}

/// What is behind the first band. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn fill_beyond(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { INSTALLED.get().fills.at(n)(dst, byte, n) }
}
