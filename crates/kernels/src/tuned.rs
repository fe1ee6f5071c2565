//! A composition by size: one row up to here, the next up to there, the C library beyond.
//!
//! Where the bands end is measured per machine and handed in; no size stands in this file. Nothing
//! installed means the C library throughout. What is installed is resolved once per process into
//! function pointers, and stays.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::c_library;
use crate::entry::{COPIES, FILLS, MOVES, copy_called, fill_called, move_called};
pub use crate::entry::{copies, copy, fill, fills, move_, moves};
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

impl<F: Copy + PartialEq> Steps<F> {
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

    /// What serves every size there is, if it is one function.
    fn alone(&self) -> Option<F> {
        let ends = self.upto.iter().take_while(|upto| **upto != usize::MAX).count();
        let [first, others @ ..] = &self.run;
        others.iter().take(ends).all(|run| run == first).then_some(*first)
    }

    /// What serves this size, if it is in the first band.
    #[inline(always)]
    fn first(&self, n: usize) -> Option<F> {
        (n <= self.upto[0]).then_some(self.run[0])
    }

    fn at(&self, n: usize) -> F {
        self.first(n).unwrap_or_else(|| self.beyond_first(n))
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
        COPIES.publish(self.copies.alone().unwrap_or(copy_by_size) as *mut ());
        MOVES.publish(self.moves.alone().unwrap_or(move_by_size) as *mut ());
        FILLS.publish(self.fills.alone().unwrap_or(fill_by_size) as *mut ());
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

/// Written once, before any pointer that leads to a reader of it.
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
// Release the pointers that alone lead to `get`.
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
        // SAFETY: only functions that go by bands call it, and they are published after the one write.
        unsafe { &*self.bands.get() }
    }
}

static INSTALLED: Once = Once { state: AtomicU8::new(FREE), bands: UnsafeCell::new(UNTUNED) };

/// What a row copies by from now on: of `tuned` what is installed, so that a caller who keeps it goes
/// there without a jump between.
pub(crate) fn copies_of(row: &Kernel) -> CopyFn {
    if row.name == COPY.name && INSTALLED.is_published() { copies() } else { row.copy }
}

/// The same of its moves.
pub(crate) fn moves_of(row: &Kernel) -> Option<CopyFn> {
    if row.name == COPY.name && INSTALLED.is_published() { Some(moves()) } else { row.move_ }
}

/// The same of a fill.
pub(crate) fn fills_of(row: &Fill) -> FillFn {
    if row.name == FILL.name && INSTALLED.is_published() { fills() } else { row.fill }
}

/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
unsafe extern "C" fn copy_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let Some(run) = INSTALLED.get().copies.first(n) else {
        // SAFETY: the same contract.
        return unsafe { copy_beyond(dst, src, n) };
    };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) }
}

/// The bands behind the first. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Kernel::copy`]; the bands are installed.
#[cold]
#[inline(never)]
unsafe extern "C" fn copy_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().copies.beyond_first(n)(dst, src, n) }
}

/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
unsafe extern "C" fn move_by_size(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let Some(run) = INSTALLED.get().moves.first(n) else {
        // SAFETY: the same contract.
        return unsafe { move_beyond(dst, src, n) };
    };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, src, n) }
}

/// The bands behind the first. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Kernel::move_`]; the bands are installed.
#[cold]
#[inline(never)]
unsafe extern "C" fn move_beyond(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the same contract.
    unsafe { INSTALLED.get().moves.beyond_first(n)(dst, src, n) }
}

/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
unsafe extern "C" fn fill_by_size(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    let Some(run) = INSTALLED.get().fills.first(n) else {
        // SAFETY: the same contract.
        return unsafe { fill_beyond(dst, byte, n) };
    };
    // SAFETY: the same contract; its row was available when it was installed.
    unsafe { run(dst, byte, n) }
}

/// The bands behind the first. Away from what is in front of it, which is to stay short.
///
/// # Safety
/// The contract of [`Fill::fill`]; the bands are installed.
#[cold]
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
        assert_eq!(copies_of(&COPY) as usize, COPY.copy as usize);
        assert_eq!(copies() as usize, memcpy as *const () as usize);

        Bands::of(&[(300, copy), (700, &KERNELS[0])]).unwrap().install().unwrap();
        assert_eq!(copies_of(&COPY) as usize, copy_by_size as *const () as usize);
        let bands = INSTALLED.get();
        let simple = KERNELS[0].copy;
        for (n, run) in
            [(0, copy.copy), (300, copy.copy), (301, simple), (700, simple), (701, copy.copy)]
        {
            assert_eq!(bands.copies.at(n) as usize, run as usize, "{n} bytes");
        }
        assert_eq!(fills() as usize, memset as *const () as usize, "no fill was measured");
    }

    /// Who serves every size is jumped to at once.
    #[test]
    fn bands_of_one_function_are_that_function() {
        let row = |name: &str| KERNELS.iter().find(|row| row.name == name).unwrap();
        let (libc, simple) = (row("libc"), row("simple"));
        let alone = |rows: &[(usize, &Kernel)]| {
            Bands::of(rows).unwrap().copies.alone().map(|run| run as usize)
        };
        assert_eq!(alone(&[]), Some(libc.copy as usize));
        assert_eq!(alone(&[(usize::MAX, simple)]), Some(simple.copy as usize));
        assert_eq!(alone(&[(9, libc), (99, libc)]), Some(libc.copy as usize));
        assert_eq!(alone(&[(9, simple), (usize::MAX, simple)]), Some(simple.copy as usize));
        assert_eq!(alone(&[(9, simple)]), None, "libc is behind it");
        assert_eq!(alone(&[(9, libc), (usize::MAX, simple)]), None);
    }
}
