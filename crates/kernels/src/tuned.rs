//! A composition by size: one row up to here, the next up to there, the C library beyond.
//!
//! Where the bands end is measured per machine and handed in; no size stands in this file. Nothing
//! installed means the C library throughout. What is installed is resolved once per process into
//! function pointers, and stays.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::rows::libc;
use crate::table::{ALWAYS, CopyFn, Fill, FillFn, Kernel};

/// The table row that runs whatever bands are installed.
pub const COPY: Kernel = Kernel {
    name: "tuned",
    summary: "by size, whatever was measured best on this machine; libc where nothing was",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
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
    upto: [usize; MOST],
    run: [F; MOST],
    len: usize,
    beyond: F,
}

impl<F: Copy> Steps<F> {
    const fn only(beyond: F) -> Self {
        Steps { upto: [0; MOST], run: [beyond; MOST], len: 0, beyond }
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
        let bands = self.upto.iter().zip(&self.run).take(self.len);
        for (&upto, &run) in bands {
            if n <= upto {
                return run;
            }
        }
        self.beyond
    }

    /// The one function for every size, if there is one.
    fn alone(&self) -> Option<F> {
        match self.len {
            0 => Some(self.beyond),
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
}

impl Bands {
    /// Each row serves the sizes up to and including its number; the C library those beyond, and
    /// moves between overlapping regions where a row has none.
    pub fn of(rows: &[(usize, &Kernel)]) -> Result<Bands, Unfit> {
        let mut bands = UNTUNED;
        for &(upto, row) in rows {
            usable(row.name, row.is_available)?;
            bands.copies.push(upto, row.copy)?;
            bands.moves.push(upto, row.move_.unwrap_or(libc::move_))?;
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
        // PAIRS WITH: the loads in `copy`, `move_` and `fill`: who sees a pointer sees the bands.
        let copy = self.copies.alone().unwrap_or(copy_by_size);
        COPY_NOW.store(copy as *mut (), Ordering::Release);
        let move_ = self.moves.alone().unwrap_or(move_by_size);
        MOVE_NOW.store(move_ as *mut (), Ordering::Release);
        let fill = self.fills.alone().unwrap_or(fill_by_size);
        FILL_NOW.store(fill as *mut (), Ordering::Release);
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
    copies: Steps::only(libc::copy as CopyFn),
    moves: Steps::only(libc::move_ as CopyFn),
    fills: Steps::only(libc::fill as FillFn),
};

/// Written once, before any pointer that leads to a reader of it.
struct Once {
    taken: AtomicU8,
    bands: UnsafeCell<Bands>,
}

// SAFETY: the cell is written by the one caller of `put` that takes it, before it publishes with
// Release the pointers through which alone `get` is reached.
unsafe impl Sync for Once {}

impl Once {
    fn put(&self, bands: &Bands) -> Result<(), Unfit> {
        if self.taken.swap(1, Ordering::Relaxed) != 0 {
            return Err(Unfit::Installed);
        }
        // SAFETY: only one caller gets here, and nobody reads before it returns.
        unsafe { self.bands.get().write(*bands) };
        Ok(())
    }

    #[inline(always)]
    fn get(&self) -> &Bands {
        // SAFETY: called by the `*_by_size` functions only, whose pointers are published after the
        // one write.
        unsafe { &*self.bands.get() }
    }
}

static INSTALLED: Once = Once { taken: AtomicU8::new(0), bands: UnsafeCell::new(UNTUNED) };
static COPY_NOW: AtomicPtr<()> = AtomicPtr::new(libc::copy as *mut ());
static MOVE_NOW: AtomicPtr<()> = AtomicPtr::new(libc::move_ as *mut ());
static FILL_NOW: AtomicPtr<()> = AtomicPtr::new(libc::fill as *mut ());

/// # Safety
/// The contract of [`Kernel::copy`].
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) {
    let run = COPY_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    let run = unsafe { core::mem::transmute::<*mut (), CopyFn>(run) };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) };
}

/// # Safety
/// The contract of [`Kernel::move_`].
#[inline]
pub(crate) unsafe fn move_(dst: *mut u8, src: *const u8, n: usize) {
    let run = MOVE_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    let run = unsafe { core::mem::transmute::<*mut (), CopyFn>(run) };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) };
}

/// # Safety
/// The contract of [`Fill::fill`].
#[inline]
pub(crate) unsafe fn fill(dst: *mut u8, byte: u8, n: usize) {
    let run = FILL_NOW.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    let run = unsafe { core::mem::transmute::<*mut (), FillFn>(run) };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, byte, n) };
}

/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
unsafe fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().copies.at(n)(dst, src, n) };
}

/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
unsafe fn move_by_size(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().moves.at(n)(dst, src, n) };
}

/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
unsafe fn fill_by_size(dst: *mut u8, byte: u8, n: usize) {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().fills.at(n)(dst, byte, n) };
}
