//! Kernels by size: one kernel per size band, and the C library beyond the last band. The ends of the bands are measured per
//! machine and passed in; this file contains no sizes.

use core::fmt;

use crate::c_library;
use crate::lengths::same_length;
use crate::row::{CopyFn, Fill, FillFn, Kernel};

/// Name of the kernel that is composed of bands.
pub(crate) const TUNED: &str = "tuned";

/// Maximum number of bands.
pub const MOST: usize = 8;

/// The reason why bands were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// More than [`MOST`] bands.
    TooMany,
    /// A band does not end after the previous one.
    OutOfOrder,
    /// This machine cannot run the kernel with this name.
    Unavailable(&'static str),
    /// `tuned` cannot be a part of itself.
    Itself,
    /// Bands are already installed in this process.
    Installed,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::TooMany => write!(f, "more than {MOST} size bands"),
            Unfit::OutOfOrder => f.write_str("size bands are not in ascending order"),
            Unfit::Unavailable(name) => write!(f, "this machine cannot run the kernel {name}"),
            Unfit::Itself => f.write_str("a size band cannot use the kernel 'tuned' itself"),
            Unfit::Installed => f.write_str("the size bands of this process are already set"),
        }
    }
}

impl core::error::Error for Unfit {}

/// Functions by size. Sizes beyond the last band use the C library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandSteps<F> {
    /// Largest size of each band. Unused entries are `usize::MAX`, so that the lookup needs no count.
    upto: [usize; MOST],
    /// Function of each band. All entries after the last band hold the function for larger sizes.
    run: [F; MOST + 1],
    len: usize,
}

impl<F: Copy + PartialEq> BandSteps<F> {
    const fn only(beyond: F) -> Self {
        BandSteps { upto: [usize::MAX; MOST], run: [beyond; MOST + 1], len: 0 }
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

    /// Returns the function of the first sizes, and the largest size that it serves. Adjacent bands with equal functions count as
    /// one. The size is `usize::MAX` if all functions are equal.
    pub(crate) fn head(&self) -> (usize, F) {
        let first = self.run[0];
        // The function after the last band serves all remaining sizes.
        let other = self.run.iter().position(|run| *run != first);
        (other.map_or(usize::MAX, |other| self.upto[other - 1]), first)
    }

    #[inline(always)]
    pub(crate) fn at(&self, n: usize) -> F {
        for (&upto, &run) in self.upto.iter().zip(&self.run) {
            if n <= upto {
                return run;
            }
        }
        self.run[MOST]
    }
}

/// Copy and fill kernels by size. Use them directly to try them out; [`Bands::install`] makes them the kernel `tuned`.
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
    pub(crate) copies: BandSteps<CopyFn>,
    pub(crate) moves: BandSteps<CopyFn>,
    pub(crate) fills: BandSteps<FillFn>,
}

impl Bands {
    /// Creates bands. Each kernel serves the sizes up to and including its number, and the C library serves larger sizes. The C
    /// library also moves between overlapping regions if a kernel does not support them.
    pub fn of(rows: &[(usize, &Kernel)]) -> Result<Bands, Unfit> {
        let mut bands = UNTUNED;
        for &(upto, row) in rows {
            usable(row.name, row.is_available)?;
            bands.copies.push(upto, row.copy)?;
            bands.moves.push(upto, row.move_.unwrap_or(c_library::move_))?;
        }
        Ok(bands)
    }

    /// Adds fills by size.
    pub fn with_fills(mut self, rows: &[(usize, &Fill)]) -> Result<Bands, Unfit> {
        self.fills = UNTUNED.fills;
        for &(upto, row) in rows {
            usable(row.name, row.is_available)?;
            self.fills.push(upto, row.fill)?;
        }
        Ok(self)
    }

    /// Copies `src` over `dst`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&self, dst: &mut [u8], src: &[u8]) {
        same_length(dst, src);
        let run = self.copies.at(src.len());
        // SAFETY: two slices of that length, one of them exclusive; `of` checked that the kernel is available.
        unsafe { run(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }

    /// Sets every byte of `dst`.
    pub fn fill(&self, dst: &mut [u8], byte: u8) {
        let run = self.fills.at(dst.len());
        // SAFETY: an exclusive slice of that length; `with_fills` checked that the kernel is available.
        unsafe { run(dst.as_mut_ptr(), byte.into(), dst.len()) };
    }
}

fn usable(name: &'static str, is_available: fn() -> bool) -> Result<(), Unfit> {
    if name == TUNED {
        return Err(Unfit::Itself);
    }
    if is_available() { Ok(()) } else { Err(Unfit::Unavailable(name)) }
}

/// Bands that use the C library for all sizes.
pub(crate) const UNTUNED: Bands = Bands {
    copies: BandSteps::only(c_library::copy as CopyFn),
    moves: BandSteps::only(c_library::move_ as CopyFn),
    fills: BandSteps::only(c_library::fill as FillFn),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::KERNELS;

    /// If neighbouring bands have one function, the first band includes the sizes of both.
    #[test]
    fn the_first_band_goes_as_far_as_its_function() {
        let row = |name: &str| KERNELS.iter().find(|row| row.name == name).unwrap();
        let (libc, simple) = (row("libc"), row("simple"));
        let head = |rows: &[(usize, &Kernel)]| {
            let (upto, run) = Bands::of(rows).unwrap().copies.head();
            (upto, run as usize)
        };
        let (by_libc, by_simple) = (libc.copy as usize, simple.copy as usize);
        assert_eq!(head(&[]), (usize::MAX, by_libc));
        assert_eq!(head(&[(usize::MAX, simple)]), (usize::MAX, by_simple));
        assert_eq!(head(&[(9, libc), (99, libc)]), (usize::MAX, by_libc));
        assert_eq!(head(&[(9, simple), (usize::MAX, simple)]), (usize::MAX, by_simple));
        assert_eq!(head(&[(9, simple)]), (9, by_simple), "libc is behind it");
        assert_eq!(head(&[(9, libc), (99, libc), (usize::MAX, simple)]), (99, by_libc));
        let steps: Vec<_> =
            (1..=MOST).map(|n| (n, if n % 2 == 0 { libc } else { simple })).collect();
        assert_eq!(head(&steps), (1, by_simple));
    }
}
