//! The kernel `tuned`: one kernel per size band, and the C library beyond the last band.
//!
//! The ends of the bands are measured per machine and passed in ([`Bands`]). Without installed bands, `tuned` is the C library
//! for all sizes. Bands are resolved into function pointers once per process and never change afterwards.

use crate::bands::TUNED;
pub use crate::bands::{Bands, MOST, Unfit};
pub use crate::entry::{
    copies, copy, copy_by_size, fill, fill_by_size, fills, first_copies, first_copies_upto, move_,
    move_by_size, moves,
};
use crate::installed::INSTALLED;
use crate::row::{ALWAYS, CopyFn, Fill, FillFn, Kernel};

/// Name of the copy kernel and of the fill that use the installed bands.
pub const NAME: &str = TUNED;

/// The copy kernel that uses the installed bands.
pub(crate) const COPY: Kernel = Kernel {
    name: TUNED,
    summary: "for each size, the kernel measured fastest on this machine; libc for unmeasured sizes",
    is_available: ALWAYS,
    copy: copy_by_size,
    move_: Some(move_by_size),
};

/// The fill that uses the installed bands.
pub(crate) const FILL: Fill = Fill {
    name: TUNED,
    summary: "for each size, the kernel measured fastest on this machine; libc for unmeasured sizes",
    is_available: ALWAYS,
    fill: fill_by_size,
};

/// Returns the copy function of a row. For `tuned` this is the function of the installed bands, so that a caller that keeps the
/// pointer saves a jump.
pub(crate) fn copies_of(row: &Kernel) -> CopyFn {
    if row.name == TUNED && INSTALLED.is_published() { copies() } else { row.copy }
}

/// Returns the move function of a row, like [`copies_of`].
pub(crate) fn moves_of(row: &Kernel) -> Option<CopyFn> {
    if row.name == TUNED && INSTALLED.is_published() { Some(moves()) } else { row.move_ }
}

/// Returns the fill function of a row, like [`copies_of`].
pub(crate) fn fills_of(row: &Fill) -> FillFn {
    if row.name == TUNED && INSTALLED.is_published() { fills() } else { row.fill }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installed::INSTALLED;
    use crate::table::{FILLS, KERNELS};
    use core::ffi::c_int;

    unsafe extern "C" {
        fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8;
        fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8;
    }

    /// If the C library is the fastest, it is called directly: no code of this crate runs in between.
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
        assert_eq!(copies_of(&COPY) as usize, copies() as usize);
        assert_ne!(copies() as usize, copy.copy as usize, "it goes by size");
        assert_eq!((first_copies() as usize, first_copies_upto()), (copy.copy as usize, 300));
        let bands = INSTALLED.get();
        let simple = KERNELS[0].copy;
        for (n, run) in
            [(0, copy.copy), (300, copy.copy), (301, simple), (700, simple), (701, copy.copy)]
        {
            assert_eq!(bands.copies.at(n) as usize, run as usize, "{n} bytes");
        }
        assert_eq!(fills() as usize, memset as *const () as usize, "no fill was measured");
    }
}
