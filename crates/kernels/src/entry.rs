//! Entry points of `tuned`: the caller's code compares the size with the end of the first band, and calls that band's function
//! through one pointer.
//!
//! Most copies are short, so any overhead between the caller and the loop would cost more than a kernel gains. The inlined code is
//! therefore one comparison, followed by a call through a pointer in memory, as Rust also compiles a call of memcpy.
//! docs/benchmarks/kernels.md has the measured cost.
// The empty asm block only passes an address through and reads nothing.
#![allow(clippy::pointers_in_nomem_asm_block)]

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::bands::{Bands, Unfit};
use crate::c_library;
use crate::installed::{INSTALLED, copy_beyond, fill_beyond, move_beyond};
use crate::row::{CopyFn, FillFn};

/// The first band: a function, and the largest size it serves. The two fields are read and updated independently. That is
/// correct, because the function of any band handles every size, though more slowly.
// The order of the two words matters: assembly reads them.
#[derive(Debug)]
#[repr(C)]
struct EntryBand {
    upto: AtomicUsize,
    run: AtomicPtr<()>,
}

impl EntryBand {
    const fn of_every_size(run: *mut ()) -> Self {
        EntryBand { upto: AtomicUsize::new(usize::MAX), run: AtomicPtr::new(run) }
    }

    fn publish(&self, upto: usize, run: *mut ()) {
        self.run.store(run, Ordering::Relaxed);
        // PAIRS WITH: the fence in `Once::get` in `installed`. A caller that reads this value and continues beyond the band sees the other
        // bands.
        self.upto.store(upto, Ordering::Release);
    }

    #[inline(always)]
    fn serves(&self, n: usize) -> bool {
        n <= self.upto()
    }

    #[inline(always)]
    fn upto(&self) -> usize {
        self.upto.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn run(&self) -> *mut () {
        // Relaxed: the function existed before the program started.
        self.run.load(Ordering::Relaxed)
    }
}

static COPIES: EntryBand = EntryBand::of_every_size(c_library::copy as *mut ());
static MOVES: EntryBand = EntryBand::of_every_size(c_library::move_ as *mut ());
static FILLS: EntryBand = EntryBand::of_every_size(c_library::fill as *mut ());

impl Bands {
    /// Installs these bands as `tuned` for the rest of the process. Only the first call succeeds.
    pub fn install(self) -> Result<(), Unfit> {
        INSTALLED.put(&self)?;
        let (upto, run) = self.copies.head();
        COPIES.publish(upto, run as *mut ());
        let (upto, run) = self.moves.head();
        MOVES.publish(upto, run as *mut ());
        let (upto, run) = self.fills.head();
        FILLS.publish(upto, run as *mut ());
        INSTALLED.publish();
        Ok(())
    }
}

/// Returns the function of the first band. Bindings for other languages call it after a comparison of the size, as [`copy`] does. The
/// function changes once, when bands are installed. Both functions handle every size.
#[inline(always)]
pub fn first_copies() -> CopyFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(COPIES.run()) }
}

/// Returns the largest size that [`first_copies`] serves, or [`usize::MAX`] if it serves every size.
#[inline(always)]
pub fn first_copies_upto() -> usize {
    COPIES.upto()
}

#[inline(always)]
fn first_moves() -> CopyFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(MOVES.run()) }
}

#[inline(always)]
fn first_fills() -> FillFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), FillFn>(FILLS.run()) }
}

/// Returns a function that copies every size with the kernels in use now. If one kernel serves every size, returns the function
/// of that kernel.
pub fn copies() -> CopyFn {
    if COPIES.upto() == usize::MAX { first_copies() } else { copy_by_size }
}

/// Returns a function that moves every size, like [`copies`].
pub fn moves() -> CopyFn {
    if MOVES.upto() == usize::MAX { first_moves() } else { move_by_size }
}

/// Returns a function that fills every size, like [`copies`].
pub fn fills() -> FillFn {
    if FILLS.upto() == usize::MAX { first_fills() } else { fill_by_size }
}

/// Dispatches to the first band's function or to the code for larger sizes, with a tail call.
///
/// # Safety
/// The contract of the called function.
macro_rules! jump {
    ($first:ident, $run:ident, $beyond:ident, $dst:expr, $second:expr, $n:expr) => {
        if $first.serves($n) {
            // SAFETY: guaranteed by the caller; the kernel was available when it was installed.
            unsafe { $run()($dst, $second, $n) }
        } else {
            // SAFETY: guaranteed by the caller; the first band has an end, so bands are installed.
            unsafe { $beyond($dst, $second, $n) }
        }
    };
}

/// Like `jump`, but inlined into the caller. Without assembly, the compiler would first load both atomic operands into registers.
/// The two additional instructions are measurable in the shortest copies.
///
/// # Safety
/// The contract of the called function.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! call {
    ($first:ident, $run:ident, $beyond:ident, $dst:expr, $second:expr, $n:expr) => {{
        let (dst, second, n) = ($dst, $second, $n);
        let mut first = &raw const $first;
        // The address of a static in another object must be loaded. The asm hides its value, so that the compiler loads it once
        // for both uses.
        // SAFETY: the asm does nothing.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) first,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: the asm reads a word of a static and writes flags. For the label: as in `jump`.
        unsafe {
            core::arch::asm!(
                "cmp {n}, qword ptr [{first}]",
                "ja {beyond}",
                n = in(reg) n,
                first = in(reg) first,
                beyond = label {
                    // SAFETY: as in `jump`.
                    return unsafe { $beyond(dst, second, n) };
                },
                options(readonly, nostack),
            );
        }
        let sink: *mut u8;
        // SAFETY: a call with the C calling convention and three arguments. The caller guarantees the function's contract, and
        // the kernel was available when it was installed.
        unsafe {
            core::arch::asm!(
                "call qword ptr [{first} + 8]",
                first = in(reg) first,
                in("rdi") dst,
                in("rsi") second,
                in("rdx") n,
                lateout("rax") sink,
                clobber_abi("C"),
            );
        }
        sink
    }};
}
#[cfg(any(not(target_arch = "x86_64"), miri))]
use jump as call;

/// Copies with the installed bands, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(COPIES, first_copies, copy_beyond, dst, src, n)
}

/// Moves with the installed bands, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline(always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(MOVES, first_moves, move_beyond, dst, src, n)
}

/// Fills with the low byte of `byte` by the installed bands, and returns the pointer.
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline(always)]
pub unsafe fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    call!(FILLS, first_fills, fill_beyond, dst, byte, n)
}

/// [`copy`] as a function, for callers in other languages and for use as a function pointer.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline]
pub unsafe extern "C" fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    jump!(COPIES, first_copies, copy_beyond, dst, src, n)
}

/// [`move_`] as a function, for callers in other languages and for use as a function pointer.
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline]
pub unsafe extern "C" fn move_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    jump!(MOVES, first_moves, move_beyond, dst, src, n)
}

/// [`fill`] as a function, for callers in other languages and for use as a function pointer.
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline]
pub unsafe extern "C" fn fill_by_size(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    jump!(FILLS, first_fills, fill_beyond, dst, byte, n)
}
