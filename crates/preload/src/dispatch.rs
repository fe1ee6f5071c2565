//! The functions in use: one pointer per kind of call, set once before main. Null until then.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use thalweg_kernels::{CopyFn, FillFn};

use crate::choice::MOST;
use crate::{counting, early, layout};

/// A function of one kind of call, by size.
pub struct Steps {
    upto: [AtomicUsize; MOST],
    run: [AtomicPtr<()>; MOST],
    /// What serves every size, if one function does.
    alone: AtomicPtr<()>,
}

impl Steps {
    const fn new() -> Self {
        Self {
            upto: [const { AtomicUsize::new(0) }; MOST],
            run: [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST],
            alone: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Sets one step. Before the pointer that leads here is published.
    pub fn set(&self, place: usize, upto: usize, run: *mut ()) {
        if let (Some(size), Some(function)) = (self.upto.get(place), self.run.get(place)) {
            size.store(upto, Ordering::Relaxed);
            function.store(run, Ordering::Relaxed);
        }
        if place == 0 && upto == usize::MAX {
            self.alone.store(run, Ordering::Relaxed);
        }
    }

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
pub static COPIES: Steps = Steps::new();
/// Steps of moves.
pub static MOVES: Steps = Steps::new();
/// Steps of fills.
pub static FILLS: Steps = Steps::new();

static COPY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static MOVE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static FILL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Uses the steps as they are set, from now on.
pub fn publish() {
    let counted = counting::is_open();
    let choose = |steps: &Steps, by_size: *mut (), counts: *mut ()| {
        let alone = steps.alone.load(Ordering::Relaxed);
        if counted {
            counts
        } else if alone.is_null() {
            by_size
        } else {
            alone
        }
    };
    // PAIRS WITH: the loads in `copy`, `move_` and `fill`: who sees a pointer sees the steps.
    COPY.store(choose(&COPIES, copy_by_size as *mut (), count_copy as *mut ()), Ordering::Release);
    MOVE.store(choose(&MOVES, move_by_size as *mut (), count_move as *mut ()), Ordering::Release);
    FILL.store(choose(&FILLS, fill_by_size as *mut (), count_fill as *mut ()), Ordering::Release);
}

/// # Safety
/// `src` is readable and `dst` writable for `n` bytes; they do not overlap, or are the same.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; only functions of this type are stored there.
    unsafe { run_copy(COPY.load(Ordering::Acquire), dst, src, n) };
}

/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; only functions of this type are stored there.
    unsafe { run_copy(MOVE.load(Ordering::Acquire), dst, src, n) };
}

/// # Safety
/// `dst` is writable for `n` bytes.
#[inline(always)]
#[allow(clippy::inline_always)]
pub unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract; only functions of this type are stored there.
    unsafe { run_fill(FILL.load(Ordering::Acquire), dst, byte, n) };
}

/// # Safety
/// `run` is null or a [`CopyFn`], whose contract holds; null can move.
#[inline(always)]
#[allow(clippy::inline_always)]
unsafe fn run_copy(run: *mut (), dst: *mut u8, src: *const u8, n: usize) {
    if run.is_null() {
        // SAFETY: the same contract.
        return unsafe { early::move_(dst, src, n) };
    }
    // SAFETY: a CopyFn, says the caller.
    let run = unsafe { core::mem::transmute::<*mut (), CopyFn>(run) };
    // SAFETY: the same contract; its row was available when it was chosen.
    unsafe { run(dst, src, n) };
}

/// # Safety
/// `run` is null or a [`FillFn`], whose contract holds.
#[inline(always)]
#[allow(clippy::inline_always)]
unsafe fn run_fill(run: *mut (), dst: *mut u8, byte: u8, n: usize) {
    if run.is_null() {
        // SAFETY: the same contract.
        return unsafe { early::fill(dst, byte, n) };
    }
    // SAFETY: a FillFn, says the caller.
    let run = unsafe { core::mem::transmute::<*mut (), FillFn>(run) };
    // SAFETY: the same contract; its row was available when it was chosen.
    unsafe { run(dst, byte, n) };
}

/// # Safety
/// As for [`copy`].
unsafe fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; the steps hold CopyFns.
    unsafe { run_copy(COPIES.at(n), dst, src, n) };
}

/// # Safety
/// As for [`move_`].
unsafe fn move_by_size(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; the steps hold CopyFns that move.
    unsafe { run_copy(MOVES.at(n), dst, src, n) };
}

/// # Safety
/// As for [`fill`].
unsafe fn fill_by_size(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract; the steps hold FillFns.
    unsafe { run_fill(FILLS.at(n), dst, byte, n) };
}

/// # Safety
/// As for [`copy`].
unsafe fn count_copy(dst: *mut u8, src: *const u8, n: usize) {
    counting::count(layout::COPY, n);
    // SAFETY: the same contract.
    unsafe { copy_by_size(dst, src, n) };
}

/// # Safety
/// As for [`move_`].
unsafe fn count_move(dst: *mut u8, src: *const u8, n: usize) {
    counting::count(layout::MOVE, n);
    // SAFETY: the same contract.
    unsafe { move_by_size(dst, src, n) };
}

/// # Safety
/// As for [`fill`].
unsafe fn count_fill(dst: *mut u8, byte: u8, n: usize) {
    counting::count(layout::SET, n);
    // SAFETY: the same contract.
    unsafe { fill_by_size(dst, byte, n) };
}
