//! Where calls of `tuned` go: the end of the first band is tested in the caller, and what serves it is called
//! through one pointer.
//!
//! Most copies are short, and what lies between a caller and their loop would cost them more than any
//! kernel gains. So what is inlined here is the call of memcpy as Rust compiles it, one through a pointer in
//! memory, and a comparison before it (docs/kernels.md has what it costs).
// An address goes through an empty one, and nothing is read there.
#![allow(clippy::pointers_in_nomem_asm_block)]

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::bands::{Bands, Unfit};
use crate::c_library;
use crate::installed::{INSTALLED, copy_beyond, fill_beyond, move_beyond};
use crate::row::{CopyFn, FillFn};

/// The first band: what serves every size up to one. It is read and changed by halves: what serves a band
/// serves any size rightly, if not as fast.
// Two words in this order: assembly reads them.
#[derive(Debug)]
#[repr(C)]
struct First {
    upto: AtomicUsize,
    run: AtomicPtr<()>,
}

impl First {
    const fn of_every_size(run: *mut ()) -> Self {
        First { upto: AtomicUsize::new(usize::MAX), run: AtomicPtr::new(run) }
    }

    fn publish(&self, upto: usize, run: *mut ()) {
        self.run.store(run, Ordering::Relaxed);
        // PAIRS WITH: the fence of who is led beyond this band, in `installed`: it sees the others.
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
        // What it points to was there before the program started.
        self.run.load(Ordering::Relaxed)
    }
}

static COPIES: First = First::of_every_size(c_library::copy as *mut ());
static MOVES: First = First::of_every_size(c_library::move_ as *mut ());
static FILLS: First = First::of_every_size(c_library::fill as *mut ());

impl Bands {
    /// Makes these the bands of `tuned`, for the rest of the process; only the first caller can.
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

/// What copies in the first band now, for callers in other languages who test its end as [`copy`] does. It
/// changes once, when bands are installed; it copies any size before and after.
#[inline(always)]
pub fn first_copies() -> CopyFn {
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(COPIES.run()) }
}

/// The last size that [`first_copies`] serves; [`usize::MAX`] where it serves every size.
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

/// What copies every size now: what does so alone, or what goes by size.
pub fn copies() -> CopyFn {
    if COPIES.upto() == usize::MAX { first_copies() } else { copy_by_size }
}

/// What moves every size now.
pub fn moves() -> CopyFn {
    if MOVES.upto() == usize::MAX { first_moves() } else { move_by_size }
}

/// What fills every size now.
pub fn fills() -> FillFn {
    if FILLS.upto() == usize::MAX { first_fills() } else { fill_by_size }
}

/// Goes to what the first band has, or beyond it, as a function of its own: by one jump.
///
/// # Safety
/// The contract of what is called.
macro_rules! jump {
    ($first:ident, $run:ident, $beyond:ident, $dst:expr, $second:expr, $n:expr) => {
        if $first.serves($n) {
            // SAFETY: the same contract; its row was available when it was installed.
            unsafe { $run()($dst, $second, $n) }
        } else {
            // SAFETY: the same contract; an end of the first band was read, so bands are installed.
            unsafe { $beyond($dst, $second, $n) }
        }
    };
}

/// The same as a part of the caller. The compiler would load what it compares and what it calls into registers
/// first, as it does with all that is atomic: two instructions more, which the shortest copies feel.
///
/// # Safety
/// The contract of what is called.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! call {
    ($first:ident, $run:ident, $beyond:ident, $dst:expr, $second:expr, $n:expr) => {{
        let (dst, second, n) = ($dst, $second, $n);
        let mut first = &raw const $first;
        // What can be in another object is found by a load: once for both, if it is not known what it is.
        // SAFETY: it does nothing.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) first,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: it reads a word of a static and writes flags. Beyond: as in `jump`.
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
        // SAFETY: a call in its own convention, with its three arguments; the same contract, and the row
        // was available when it was installed.
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

/// Copies by what is installed, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(COPIES, first_copies, copy_beyond, dst, src, n)
}

/// Moves by what is installed, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline(always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    call!(MOVES, first_moves, move_beyond, dst, src, n)
}

/// Fills by what is installed, with the low byte of a number, and returns the pointer.
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline(always)]
pub unsafe fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    call!(FILLS, first_fills, fill_beyond, dst, byte, n)
}

/// [`copy`] as a function, for callers in other languages and whoever keeps a pointer.
///
/// # Safety
/// The contract of [`Kernel::copy`](crate::Kernel::copy).
#[inline]
pub unsafe extern "C" fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    jump!(COPIES, first_copies, copy_beyond, dst, src, n)
}

/// [`move_`] as a function, for callers in other languages and whoever keeps a pointer.
///
/// # Safety
/// The contract of [`Kernel::move_`](crate::Kernel::move_).
#[inline]
pub unsafe extern "C" fn move_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    jump!(MOVES, first_moves, move_beyond, dst, src, n)
}

/// [`fill`] as a function, for callers in other languages and whoever keeps a pointer.
///
/// # Safety
/// The contract of [`Fill::fill`](crate::Fill::fill).
#[inline]
pub unsafe extern "C" fn fill_by_size(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    jump!(FILLS, first_fills, fill_beyond, dst, byte, n)
}
