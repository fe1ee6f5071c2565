//! Where calls of `tuned` go: one jump through a pointer.
//!
//! Most copies are short, and what lies between a caller and their loop would cost them more than any
//! kernel gains. So a caller calls a function of one jump here: to the C library's own function where that
//! serves every size, to a kernel where that does, else to a comparison with the end of the first band. It is
//! a call of the function, not one through the pointer, which takes some processors twice as long
//! (docs/kernels.md).

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::c_library;
use crate::row::{CopyFn, FillFn};

/// Where calls jump to.
#[derive(Debug)]
pub(crate) struct Entry(AtomicPtr<()>);

impl Entry {
    const fn at(run: *mut ()) -> Self {
        Entry(AtomicPtr::new(run))
    }

    pub(crate) fn publish(&self, run: *mut ()) {
        // PAIRS WITH: the load in `now`: who is led to the bands sees them.
        self.0.store(run, Ordering::Release);
    }

    #[inline(always)]
    fn now(&self) -> *mut () {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) static COPIES: Entry = Entry::at(c_library::copy as *mut ());
pub(crate) static MOVES: Entry = Entry::at(c_library::move_ as *mut ());
pub(crate) static FILLS: Entry = Entry::at(c_library::fill as *mut ());

/// What copies now, for callers in other languages who jump as [`copy`] does. It changes once, when bands are
/// installed; it copies any size before and after.
#[inline(always)]
pub fn copies() -> CopyFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(COPIES.now()) }
}

/// What moves now.
#[inline(always)]
pub fn moves() -> CopyFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(MOVES.now()) }
}

/// What fills now.
#[inline(always)]
pub fn fills() -> FillFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), FillFn>(FILLS.now()) }
}

/// Calls one of the functions below directly. The compiler calls one of another crate through a pointer to it.
///
/// # Safety
/// The contract of the function.
macro_rules! call {
    ($run:path, $dst:expr, $second:expr, $n:expr) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a call in its own convention, with its three arguments; the same contract.
        unsafe {
            let sink: *mut u8;
            core::arch::asm!(
                "call {run}",
                run = sym $run,
                in("rdi") $dst,
                in("rsi") $second,
                in("rdx") $n,
                lateout("rax") sink,
                clobber_abi("C"),
            );
            sink
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        // SAFETY: the same contract.
        unsafe {
            $run($dst, $second, $n)
        }
    }};
}

/// Copies by what is installed, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(copy_called, dst, src, n)
}

/// Moves by what is installed, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline(always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(move_called, dst, src, n)
}

/// Fills by what is installed, with the low byte of a number, and returns the pointer.
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline(always)]
pub unsafe fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    call!(fill_called, dst, byte, n)
}

/// The one jump through the pointer.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_called(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { copies()(dst, src, n) }
}

/// As [`copy_called`].
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline(never)]
pub(crate) unsafe extern "C" fn move_called(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { moves()(dst, src, n) }
}

/// As [`copy_called`].
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline(never)]
pub(crate) unsafe extern "C" fn fill_called(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { fills()(dst, byte, n) }
}
