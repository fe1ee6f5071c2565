//! A composition by size: one row up to here, the next up to there, the C library beyond.
//!
//! Where the bands end is measured per machine and handed in; no size stands in this file. Nothing
//! installed means the C library throughout. What is installed is resolved once per process into
//! function pointers, and stays.
//!
//! Most copies are short, and a look at bands would cost them more than any kernel gains. So a caller
//! has one comparison inlined, with the end of the first band, and jumps from there to the function of
//! that band: the C library's own where it won. Only larger sizes come here to look for their band.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::c_library;
use crate::row::{ALWAYS, CopyFn, Fill, FillFn, Kernel};

/// The table row that runs whatever bands are installed.
pub const COPY: Kernel = Kernel {
    name: "tuned",
    summary: "by size, whatever was measured best on this machine; libc where nothing was",
    is_available: ALWAYS,
    copy: copy_called,
    move_: Some(move_called),
};

/// The fill that runs whatever bands are installed.
pub const FILL: Fill = Fill {
    name: "tuned",
    summary: "by size, whatever was measured best on this machine; libc where nothing was",
    is_available: ALWAYS,
    fill: fill_called,
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

    fn at(&self, n: usize) -> F {
        if n <= self.upto[0] { self.run[0] } else { self.beyond_first(n) }
    }

    #[inline(always)]
    fn beyond_first(&self, n: usize) -> F {
        for (&upto, &run) in self.upto.iter().zip(&self.run).skip(1) {
            if n <= upto {
                return run;
            }
        }
        self.run[MOST]
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
        FRONT.copies.publish(self.copies.upto[0], self.copies.run[0] as *mut ());
        FRONT.moves.publish(self.moves.upto[0], self.moves.run[0] as *mut ());
        FRONT.fills.publish(self.fills.upto[0], self.fills.run[0] as *mut ());
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
        unsafe { run(dst.as_mut_ptr(), byte.into(), dst.len()) };
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
};

/// Written once, before any size that leads to a reader of it.
struct Once {
    state: AtomicU8,
    bands: UnsafeCell<Bands>,
}

/// The states of [`Once`].
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Callers are led to the bands.
const PUBLISHED: u8 = 2;

// SAFETY: the cell is written by the one caller of `put` that takes it, before it publishes with
// Release the ends of first bands, above which alone `get` is reached.
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
        // PAIRS WITH: the last store of `install`: what callers read is there.
        self.state.load(Ordering::Acquire) == PUBLISHED
    }

    #[inline(always)]
    fn get(&self) -> &Bands {
        // SAFETY: called for sizes above the end of a first band only, which is published after the
        // one write; until then no size is above it.
        unsafe { &*self.bands.get() }
    }
}

static INSTALLED: Once = Once { state: AtomicU8::new(FREE), bands: UnsafeCell::new(UNTUNED) };

/// The function of a first band, and the largest size that it serves: two words, which other languages
/// read as they lie here.
#[repr(C)]
#[derive(Debug)]
pub struct First {
    upto: AtomicUsize,
    run: AtomicPtr<()>,
}

impl First {
    const fn always(run: *mut ()) -> Self {
        First { upto: AtomicUsize::new(usize::MAX), run: AtomicPtr::new(run) }
    }

    /// Every function copies every size: a caller who sees one of the two without the other is
    /// served by the C library, or by the first band's loop beyond its end.
    fn publish(&self, upto: usize, run: *mut ()) {
        // PAIRS WITH: the load in `serves`: who sees the end of the band sees the bands beyond.
        self.upto.store(upto, Ordering::Release);
        self.run.store(run, Ordering::Release);
    }

    #[inline(always)]
    fn serves(&self, n: usize) -> bool {
        n <= self.upto.load(Ordering::Acquire)
    }

    /// As two words that stay what they are now.
    fn now(&self) -> (usize, *mut ()) {
        (self.upto.load(Ordering::Acquire), self.run.load(Ordering::Acquire))
    }
}

/// What every call looks at, in one line of the cache.
#[repr(align(64))]
struct Front {
    copies: First,
    moves: First,
    fills: First,
}

static FRONT: Front = Front {
    copies: First::always(c_library::copy as *mut ()),
    moves: First::always(c_library::move_ as *mut ()),
    fills: First::always(c_library::fill as *mut ()),
};

/// What serves the first band of copies, for callers in other languages that compare and jump as
/// [`copy`] does. It changes once, when bands are installed.
pub fn first_copies() -> &'static First {
    &FRONT.copies
}

/// What serves sizes up to one, and what those above it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split<F> {
    pub upto: usize,
    pub first: F,
    pub beyond: F,
}

impl<F: Copy> Split<F> {
    const fn whole(run: F) -> Self {
        Split { upto: usize::MAX, first: run, beyond: run }
    }
}

/// What a row copies by from now on: of `tuned` what is installed, so that a caller who keeps it goes
/// there without a jump between.
pub(crate) fn copies_of(row: &Kernel) -> Split<CopyFn> {
    if row.name != COPY.name || !INSTALLED.is_published() {
        return Split::whole(row.copy);
    }
    let (upto, run) = FRONT.copies.now();
    Split { upto, first: copy_fn(run), beyond: copy_beyond }
}

/// The same of its moves.
pub(crate) fn moves_of(row: &Kernel) -> Option<Split<CopyFn>> {
    if row.name != COPY.name || !INSTALLED.is_published() {
        return row.move_.map(Split::whole);
    }
    let (upto, run) = FRONT.moves.now();
    Some(Split { upto, first: copy_fn(run), beyond: move_beyond })
}

/// The same of a fill.
pub(crate) fn fills_of(row: &Fill) -> Split<FillFn> {
    if row.name != FILL.name || !INSTALLED.is_published() {
        return Split::whole(row.fill);
    }
    let (upto, run) = FRONT.fills.now();
    Split { upto, first: fill_fn(run), beyond: fill_beyond }
}

#[inline(always)]
fn copy_fn(run: *mut ()) -> CopyFn {
    // SAFETY: only functions of this type are stored in `FRONT.copies` and `FRONT.moves`.
    unsafe { core::mem::transmute::<*mut (), CopyFn>(run) }
}

#[inline(always)]
fn fill_fn(run: *mut ()) -> FillFn {
    // SAFETY: only functions of this type are stored in `FRONT.fills`.
    unsafe { core::mem::transmute::<*mut (), FillFn>(run) }
}

/// Copies by what is installed, and returns the sink: one comparison and one jump through a pointer.
///
/// # Safety
/// The contract of [`Kernel::copy`].
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if !FRONT.copies.serves(n) {
        // SAFETY: the same contract; the end of a band is there, so the bands are.
        return unsafe { copy_beyond(dst, src, n) };
    }
    let run = copy_fn(FRONT.copies.run.load(Ordering::Acquire));
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) }
}

/// Moves by what is installed, and returns the sink.
///
/// # Safety
/// The contract of [`Kernel::move_`].
#[inline(always)]
pub unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if !FRONT.moves.serves(n) {
        // SAFETY: the same contract; the end of a band is there, so the bands are.
        return unsafe { move_beyond(dst, src, n) };
    }
    let run = copy_fn(FRONT.moves.run.load(Ordering::Acquire));
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) }
}

/// Fills by what is installed, with the low byte of a number, and returns the pointer.
///
/// # Safety
/// The contract of [`Fill::fill`].
#[inline(always)]
pub unsafe fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    if !FRONT.fills.serves(n) {
        // SAFETY: the same contract; the end of a band is there, so the bands are.
        return unsafe { fill_beyond(dst, byte, n) };
    }
    let run = fill_fn(FRONT.fills.run.load(Ordering::Acquire));
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, byte, n) }
}

/// [`copy`] as a function with an address.
///
/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn copy_called(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { copy(dst, src, n) }
}

/// # Safety
/// The contract of [`Kernel::move_`].
unsafe extern "C" fn move_called(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { move_(dst, src, n) }
}

/// # Safety
/// The contract of [`Fill::fill`].
unsafe extern "C" fn fill_called(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { fill(dst, byte, n) }
}

/// The bands behind the first. Not inlined: callers are to stay short.
///
/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
#[inline(never)]
unsafe extern "C" fn copy_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().copies.beyond_first(n)(dst, src, n) }
}

/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
#[inline(never)]
unsafe extern "C" fn move_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().moves.beyond_first(n)(dst, src, n) }
}

/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
#[inline(never)]
unsafe extern "C" fn fill_beyond(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().fills.beyond_first(n)(dst, byte, n) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{FILLS, KERNELS};

    unsafe extern "C" {
        fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8;
    }

    /// Where the C library wins, it is called: nothing of ours is between.
    #[test]
    #[cfg(not(miri))]
    fn the_rows_named_libc_are_the_functions_of_the_c_library() {
        let copy = KERNELS.iter().find(|row| row.name == "libc").unwrap();
        let fill = FILLS.iter().find(|row| row.name == "libc").unwrap();
        assert_eq!(copy.copy as usize, memcpy as *const () as usize);
        assert_eq!(copy.move_.unwrap() as usize, memmove as *const () as usize);
        assert_eq!(fill.fill as usize, memset as *const () as usize);
        let before = KERNELS.iter().find(|row| row.name == COPY.name).map(copies_of).unwrap();
        assert_eq!((before.upto, before.first as usize), (usize::MAX, COPY.copy as usize));
        assert_eq!(FRONT.copies.now(), (usize::MAX, copy.copy as *mut ()));

        Bands::of(&[(300, copy), (700, &KERNELS[0])]).unwrap().install().unwrap();
        let tuned = copies_of(&COPY);
        assert_eq!((tuned.upto, tuned.first as usize), (300, memcpy as *const () as usize));
        let bands = INSTALLED.get();
        for (n, run) in [(301, KERNELS[0].copy), (700, KERNELS[0].copy), (701, copy.copy)] {
            assert_eq!(bands.copies.beyond_first(n) as usize, run as usize, "{n} bytes");
        }
        assert_eq!(FRONT.fills.now(), (usize::MAX, fill.fill as *mut ()), "no fill was measured");
    }
}
