//! The functions in use, set once before main. Each kind of call has a size limit, and a function for all sizes below the limit.
//! The limit is 0 until the function is set. If calls are counted, the limit stays 0.
//!
//! A call compares its size with the limit and jumps to the function. If that is the C library's function, no other code of this
//! object runs.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use thalweg_kernels::{CopyFn, FillFn};

use crate::choice::MOST;
use crate::{counting, early, layout};

/// Functions of one kind of call, by size.
pub struct SizeSteps {
    /// `first` serves all sizes below this one.
    below: AtomicUsize,
    first: AtomicPtr<()>,
    upto: [AtomicUsize; MOST],
    run: [AtomicPtr<()>; MOST],
}

impl SizeSteps {
    const fn new() -> Self {
        Self {
            below: AtomicUsize::new(0),
            first: AtomicPtr::new(core::ptr::null_mut()),
            upto: [const { AtomicUsize::new(0) }; MOST],
            run: [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST],
        }
    }

    /// Sets one step. Must be called before [`publish`].
    pub fn set(&self, place: usize, upto: usize, run: *mut ()) {
        if let (Some(size), Some(function)) = (self.upto.get(place), self.run.get(place)) {
            size.store(upto, Ordering::Relaxed);
            function.store(run, Ordering::Relaxed);
        }
    }

    /// Lets callers use the first step without checking the others.
    fn publish(&self) {
        let [upto, ..] = &self.upto;
        let [run, ..] = &self.run;
        self.first.store(run.load(Ordering::Relaxed), Ordering::Relaxed);
        // `usize::MAX` saturates. That is harmless, because no object has this size.
        let below = upto.load(Ordering::Relaxed).saturating_add(1);
        // PAIRS WITH: the load in `serves`. A caller that sees the size sees the function.
        self.below.store(below, Ordering::Release);
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn serves(&self, n: usize) -> bool {
        n < self.below.load(Ordering::Acquire)
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn first(&self) -> *mut () {
        self.first.load(Ordering::Relaxed)
    }

    /// Returns the function for a size, or null if none was set.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn at(&self, n: usize) -> *mut () {
        for (upto, run) in self.upto.iter().zip(&self.run) {
            if n <= upto.load(Ordering::Relaxed) {
                return run.load(Ordering::Relaxed);
            }
        }
        core::ptr::null_mut()
    }
}

/// Steps of copies.
pub static COPIES: SizeSteps = SizeSteps::new();
/// Steps of moves.
pub static MOVES: SizeSteps = SizeSteps::new();
/// Steps of fills.
pub static FILLS: SizeSteps = SizeSteps::new();

/// State of the size steps: `UNSET`, `SET`, or `COUNTED` (set, and every call is counted).
static STATE: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = 0;
const SET: u8 = 1;
const COUNTED: u8 = 2;

/// Activates the steps.
pub fn publish() {
    let counted = counting::is_open();
    // PAIRS WITH: the load in `is_set`. A caller that sees the state sees the steps.
    STATE.store(if counted { COUNTED } else { SET }, Ordering::Release);
    if !counted {
        COPIES.publish();
        MOVES.publish();
        FILLS.publish();
    }
}

/// Returns `true` if the steps are set. Counts the call if calls are counted.
#[inline(always)]
#[allow(clippy::inline_always)]
fn is_set(kind: usize, n: usize) -> bool {
    match STATE.load(Ordering::Acquire) {
        UNSET => false,
        COUNTED => {
            counting::count(kind, n);
            true
        }
        _ => true,
    }
}

/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they do not overlap, or are the same.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if COPIES.serves(n) {
        // SAFETY: guaranteed by the caller; the function is a step of copies.
        unsafe { run_copy(COPIES.first(), dst, src, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_by_size(dst, src, n) }
    }
}

/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if MOVES.serves(n) {
        // SAFETY: guaranteed by the caller; the function is a step of moves.
        unsafe { run_copy(MOVES.first(), dst, src, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { move_by_size(dst, src, n) }
    }
}

/// # Safety
/// `dst` is writable for `n` bytes.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    if FILLS.serves(n) {
        // SAFETY: guaranteed by the caller; the function is a step of fills.
        unsafe { run_fill(FILLS.first(), dst, byte, n) }
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { fill_by_size(dst, byte, n) }
    }
}

/// # Safety
/// `run` is a [`CopyFn`], and its contract holds.
#[inline(always)]
#[allow(clippy::inline_always)]
unsafe fn run_copy(run: *mut (), dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that it is a CopyFn.
    let run = unsafe { core::mem::transmute::<*mut (), CopyFn>(run) };
    // SAFETY: guaranteed by the caller; the kernel was available when it was chosen.
    unsafe { run(dst, src, n) }
}

/// # Safety
/// `run` is a [`FillFn`], and its contract holds.
#[inline(always)]
#[allow(clippy::inline_always)]
unsafe fn run_fill(run: *mut (), dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that it is a FillFn.
    let run = unsafe { core::mem::transmute::<*mut (), FillFn>(run) };
    // SAFETY: guaranteed by the caller; the kernel was available when it was chosen.
    unsafe { run(dst, byte, n) }
}

/// # Safety
/// See [`copy`].
#[inline(never)]
unsafe fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let run = if is_set(layout::COPY, n) { COPIES.at(n) } else { core::ptr::null_mut() };
    if run.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { early::move_(dst, src, n) };
    }
    // SAFETY: guaranteed by the caller; the steps hold CopyFns.
    unsafe { run_copy(run, dst, src, n) }
}

/// # Safety
/// See [`move_`].
#[inline(never)]
unsafe fn move_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let run = if is_set(layout::MOVE, n) { MOVES.at(n) } else { core::ptr::null_mut() };
    if run.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { early::move_(dst, src, n) };
    }
    // SAFETY: guaranteed by the caller; the steps hold CopyFns that move.
    unsafe { run_copy(run, dst, src, n) }
}

/// # Safety
/// See [`fill`].
#[inline(never)]
unsafe fn fill_by_size(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    let run = if is_set(layout::SET, n) { FILLS.at(n) } else { core::ptr::null_mut() };
    if run.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { early::fill(dst, byte, n) };
    }
    // SAFETY: guaranteed by the caller; the steps hold FillFns.
    unsafe { run_fill(run, dst, byte, n) }
}
