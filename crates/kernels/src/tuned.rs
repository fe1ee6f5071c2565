//! A composition by size: one row up to here, the next up to there, the C library beyond.
//!
//! Where the bands end is measured per machine and handed in; no size stands in this file. Nothing
//! installed means the C library throughout. What is installed is resolved once per process into
//! function pointers, and stays.
//!
//! Most copies are short, and a look at bands would cost them more than any kernel gains. So the
//! pointer leads into the first band's own loop, where that has a head: it compares with one
//! number, or with none, and only larger sizes come back here to look for their band.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::c_library;
use crate::row::{ALWAYS, CopyFn, Fill, FillFn, Head, Kernel};

/// The table row that runs whatever bands are installed.
pub const COPY: Kernel = Kernel {
    name: "tuned",
    summary: "by size, whatever was measured best on this machine; libc where nothing was",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
    head: None,
};

/// The fill that runs whatever bands are installed.
pub const FILL: Fill = Fill {
    name: "tuned",
    summary: "by size, whatever was measured best on this machine; libc where nothing was",
    is_available: ALWAYS,
    fill,
};

/// How many bands there may be.
pub const MOST: usize = 8;

/// Why bands were not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// More than [`MOST`].
    TooMany,
    /// A band ends where the one before it ends, or earlier.
    OutOfOrder,
    /// This machine cannot run the row of this name.
    Unavailable(&'static str),
    /// `tuned` cannot be made of itself.
    Itself,
    /// This process has its bands already.
    Installed,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::TooMany => write!(f, "more than {MOST} size bands"),
            Unfit::OutOfOrder => f.write_str("size bands are not in ascending order"),
            Unfit::Unavailable(name) => write!(f, "this machine cannot run the kernel {name}"),
            Unfit::Itself => f.write_str("the tuned kernel cannot be a part of itself"),
            Unfit::Installed => f.write_str("this process has its size bands already"),
        }
    }
}

impl core::error::Error for Unfit {}

/// Rows of one table by size; beyond the last band, the C library.
#[derive(Debug, Clone, Copy)]
struct Steps<F> {
    /// Those that are not set reach as far as any size, so that looking needs no count of them.
    upto: [usize; MOST],
    /// What serves beyond the last band is behind it, too.
    run: [F; MOST + 1],
    len: usize,
}

impl<F: Copy> Steps<F> {
    const fn only(beyond: F) -> Self {
        Steps { upto: [usize::MAX; MOST], run: [beyond; MOST + 1], len: 0 }
    }

    fn push(&mut self, upto: usize, run: F) -> Result<(), Unfit> {
        if self.len == MOST {
            return Err(Unfit::TooMany);
        }
        if self.len > 0 && upto <= self.upto[self.len - 1] {
            return Err(Unfit::OutOfOrder);
        }
        self.upto[self.len] = upto;
        self.run[self.len] = run;
        self.len += 1;
        Ok(())
    }

    #[inline(always)]
    fn at(&self, n: usize) -> F {
        for (&upto, &run) in self.upto.iter().zip(&self.run) {
            if n <= upto {
                return run;
            }
        }
        self.run[MOST]
    }

    /// The one function for every size, if there is one.
    fn alone(&self) -> Option<F> {
        match self.len {
            0 => Some(self.run[MOST]),
            1 if self.upto[0] == usize::MAX => Some(self.run[0]),
            _ => None,
        }
    }
}

/// Copy and fill kernels by size. Build one to try it; [`Bands::install`] makes it `tuned`.
///
/// ```
/// use thalweg_kernels::{Bands, by_name};
/// // The sizes come from a measurement, never from the source.
/// let measured = 1000;
/// let simple = by_name("simple").unwrap();
/// let bands = Bands::of(&[(measured, simple)])?;
/// let mut sink = [0; 5];
/// bands.copy(&mut sink, b"bytes");
/// assert_eq!(&sink, b"bytes");
/// # Ok::<(), thalweg_kernels::tuned::Unfit>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Bands {
    copies: Steps<CopyFn>,
    moves: Steps<CopyFn>,
    fills: Steps<FillFn>,
    /// The first band's, where it is long enough for that.
    head: Option<Head>,
}

impl Bands {
    /// Each row serves the sizes up to and including its number; the C library those beyond, and
    /// moves between overlapping regions where a row has none.
    pub fn of(rows: &[(usize, &Kernel)]) -> Result<Bands, Unfit> {
        let mut bands = UNTUNED;
        for &(upto, row) in rows {
            usable(row.name, row.is_available)?;
            bands.copies.push(upto, row.copy)?;
            bands.moves.push(upto, row.move_.unwrap_or(c_library::move_))?;
        }
        let first = rows.first().map(|&(upto, row)| (upto, row.head));
        bands.head = first.and_then(|(upto, head)| head.filter(|head| upto >= head.least));
        Ok(bands)
    }

    /// The same with fills by size.
    pub fn with_fills(mut self, rows: &[(usize, &Fill)]) -> Result<Bands, Unfit> {
        self.fills = UNTUNED.fills;
        for &(upto, row) in rows {
            usable(row.name, row.is_available)?;
            self.fills.push(upto, row.fill)?;
        }
        Ok(self)
    }

    /// Makes these the bands of `tuned`, for the rest of the process; only the first caller can.
    pub fn install(self) -> Result<(), Unfit> {
        INSTALLED.put(&self)?;
        FIRST_ENDS.store(self.copies.upto[0], Ordering::Relaxed);
        // PAIRS WITH: the loads in `copy`, `move_` and `fill`: who sees a pointer sees the bands.
        let copy = self.copies.alone().or(self.head.map(|head| head.copy));
        COPY_NOW.store(copy.unwrap_or(copy_beyond) as *mut (), Ordering::Release);
        let move_ = self.moves.alone().or(self.head.and_then(|head| head.move_));
        MOVE_NOW.store(move_.unwrap_or(move_beyond) as *mut (), Ordering::Release);
        let fill = self.fills.alone().unwrap_or(fill_by_size);
        FILL_NOW.store(fill as *mut (), Ordering::Release);
        INSTALLED.state.store(PUBLISHED, Ordering::Release);
        Ok(())
    }

    /// Copies `src` over `dst`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "source and sink differ in length");
        let run = self.copies.at(src.len());
        // SAFETY: two slices of that length, one of them exclusive; `of` saw the row available.
        unsafe { run(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }

    /// Sets every byte of `dst`.
    pub fn fill(&self, dst: &mut [u8], byte: u8) {
        let run = self.fills.at(dst.len());
        // SAFETY: an exclusive slice of that length; `with_fills` saw the row available.
        unsafe { run(dst.as_mut_ptr(), byte, dst.len()) };
    }
}

fn usable(name: &'static str, is_available: fn() -> bool) -> Result<(), Unfit> {
    if name == COPY.name {
        return Err(Unfit::Itself);
    }
    if is_available() { Ok(()) } else { Err(Unfit::Unavailable(name)) }
}

const UNTUNED: Bands = Bands {
    copies: Steps::only(c_library::copy as CopyFn),
    moves: Steps::only(c_library::move_ as CopyFn),
    fills: Steps::only(c_library::fill as FillFn),
    head: None,
};

/// Written once, before any pointer that leads to a reader of it.
struct Once {
    state: AtomicU8,
    bands: UnsafeCell<Bands>,
}

/// The states of [`Once`].
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// The pointers lead to the bands.
const PUBLISHED: u8 = 2;

// SAFETY: the cell is written by the one caller of `put` that takes it, before it publishes with
// Release the pointers through which alone `get` is reached.
unsafe impl Sync for Once {}

impl Once {
    fn put(&self, bands: &Bands) -> Result<(), Unfit> {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.state.compare_exchange(FREE, TAKEN, success, failure).is_err() {
            return Err(Unfit::Installed);
        }
        // SAFETY: only one caller gets here, and nobody reads before it returns.
        unsafe { self.bands.get().write(*bands) };
        Ok(())
    }

    fn is_published(&self) -> bool {
        // PAIRS WITH: the last store of `install`: the pointers are there.
        self.state.load(Ordering::Acquire) == PUBLISHED
    }

    #[inline(always)]
    fn get(&self) -> &Bands {
        // SAFETY: called by functions only whose pointers, or those of the heads that call them,
        // are published after the one write.
        unsafe { &*self.bands.get() }
    }
}

static INSTALLED: Once = Once { state: AtomicU8::new(FREE), bands: UnsafeCell::new(UNTUNED) };
static COPY_NOW: AtomicPtr<()> = AtomicPtr::new(c_library::copy as *mut ());
static MOVE_NOW: AtomicPtr<()> = AtomicPtr::new(c_library::move_ as *mut ());
static FILL_NOW: AtomicPtr<()> = AtomicPtr::new(c_library::fill as *mut ());
/// The largest size of the first band of copies and of moves. For the heads: written before the
/// pointers that lead to them.
static FIRST_ENDS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// A function of a [`Head`]: the first band by the loop, what is larger by the way out.
macro_rules! first {
    ($name:ident, $loop:path, $beyond:ident $(, $features:literal)?) => {
        /// # Safety
        /// The contract of `Head::copy` or `Head::move_`; the bands are installed.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name(dst: *mut u8, src: *const u8, n: usize) {
            if n > $crate::tuned::first_ends() {
                // SAFETY: the same contract.
                return unsafe { $crate::tuned::$beyond(dst, src, n) };
            }
            // SAFETY: the same contract.
            unsafe { $loop(dst, src, n) };
        }
    };
}
pub(crate) use first;

/// Beyond this a head goes to [`copy_beyond`] or [`move_beyond`].
#[inline(always)]
pub(crate) fn first_ends() -> usize {
    // Relaxed: whoever calls a head got it through a pointer that was published after this.
    FIRST_ENDS.load(Ordering::Relaxed)
}

/// What a row copies and moves by from now on: of `tuned` what is installed, so that a caller who
/// keeps it goes there without the jump of [`copy`].
pub(crate) fn resolved(row: &Kernel) -> (CopyFn, Option<CopyFn>) {
    if row.name == COPY.name && INSTALLED.is_published() {
        (copy_now(), Some(move_now()))
    } else {
        (row.copy, row.move_)
    }
}

/// The same of a fill.
pub(crate) fn resolved_fill(row: &Fill) -> FillFn {
    if row.name == FILL.name && INSTALLED.is_published() { fill_now() } else { row.fill }
}

#[inline(always)]
fn copy_now() -> CopyFn {
    let run = COPY_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(run) }
}

#[inline(always)]
fn move_now() -> CopyFn {
    let run = MOVE_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(run) }
}

#[inline(always)]
fn fill_now() -> FillFn {
    let run = FILL_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    unsafe { core::mem::transmute::<*mut (), FillFn>(run) }
}

/// Copies by what is installed: one load and one jump.
///
/// # Safety
/// The contract of [`Kernel::copy`].
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { copy_now()(dst, src, n) };
}

/// Moves by what is installed.
///
/// # Safety
/// The contract of [`Kernel::move_`].
#[inline]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { move_now()(dst, src, n) };
}

/// Fills by what is installed.
///
/// # Safety
/// The contract of [`Fill::fill`].
#[inline]
pub unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { fill_now()(dst, byte, n) };
}

/// Where a head goes with what is not its own; and the way in where the first band has no head. Not
/// inlined: a head is to stay short.
///
/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
#[inline(never)]
pub(crate) unsafe fn copy_beyond(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().copies.at(n)(dst, src, n) };
}

/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
#[inline(never)]
pub(crate) unsafe fn move_beyond(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().moves.at(n)(dst, src, n) };
}

/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
unsafe fn fill_by_size(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().fills.at(n)(dst, byte, n) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::KERNELS;

    const ENDS: usize = 300;

    /// A row that leaves a mark instead of a copy.
    ///
    /// # Safety
    /// The contract of [`Kernel::copy`].
    unsafe fn twos(dst: *mut u8, _: *const u8, n: usize) {
        // SAFETY: writable for `n` bytes, says the caller.
        unsafe { dst.write_bytes(2, n) };
    }

    #[test]
    fn every_head_serves_its_band_and_leaves_the_rest_to_the_next() {
        // SAFETY: it writes exactly `n` bytes; that it copies nothing is what is looked for.
        let next = unsafe { Kernel::new("twos", || true, twos, Some(twos)) };
        let first = KERNELS.iter().find(|row| row.head.is_some()).expect("a row with a head");
        Bands::of(&[(ENDS, first), (2 * ENDS, &next)]).unwrap().install().unwrap();
        // Whichever row is installed: a head has its own loop, and asks only where the band ends.
        let rows = KERNELS.iter().filter(|row| (row.is_available)());
        for (row, head) in rows.filter_map(|row| Some((row, row.head?))) {
            assert!(head.least <= ENDS, "{}", row.name);
            for run in [Some(head.copy), head.move_].into_iter().flatten() {
                for n in (0..=ENDS + 2).chain([2 * ENDS, 2 * ENDS + 1, 5000]) {
                    if cfg!(miri) && n % 41 != 0 && n != ENDS + 1 {
                        continue;
                    }
                    let (source, mut sink) = (vec![9; n], vec![1; n + 1]);
                    // SAFETY: two buffers of at least `n` bytes; the row is available.
                    unsafe { run(sink.as_mut_ptr(), source.as_ptr(), n) };
                    let mark = if (ENDS + 1..=2 * ENDS).contains(&n) { 2 } else { 9 };
                    assert!(sink[..n].iter().all(|byte| *byte == mark), "{}: {n}", row.name);
                    assert_eq!(sink[n], 1, "{}: {n} bytes and one more", row.name);
                }
            }
        }
    }

    #[test]
    fn a_first_band_that_is_shorter_than_what_a_head_does_unasked_has_none() {
        for row in KERNELS.iter().filter(|row| (row.is_available)() && row.name != COPY.name) {
            let has = |upto| Bands::of(&[(upto, row)]).unwrap().head.is_some();
            assert_eq!(has(usize::MAX), row.head.is_some(), "{}", row.name);
            if let Some(head) = row.head.filter(|head| head.least > 1) {
                assert!(!has(head.least - 1) && has(head.least), "{}", row.name);
            }
        }
    }
}
