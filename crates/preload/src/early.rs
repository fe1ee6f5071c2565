//! Functions for calls before the start of the object, by a loader or a resolver of another library. They use no table, no
//! pointer and nothing that needs a relocation. They are correct for every overlap; speed does not matter.

use core::ffi::c_int;

/// Copies `n` bytes and returns the sink; the regions may overlap.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[cold]
pub unsafe extern "C" fn move_(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if dst.addr().wrapping_sub(src.addr()) >= n {
        for at in 0..n {
            // SAFETY: `at < n`; the sink does not start inside the source, so upwards is correct.
            unsafe { byte(dst, src, at) };
        }
    } else {
        for at in (0..n).rev() {
            // SAFETY: `at < n`; the sink starts inside the source, so downwards is correct.
            unsafe { byte(dst, src, at) };
        }
    }
    dst
}

/// # Safety
/// `src + at` is readable and `dst + at` writable.
#[inline(always)]
#[allow(clippy::inline_always)]
unsafe fn byte(dst: *mut u8, src: *const u8, at: usize) {
    // Volatile: the compiler must not turn the loop around it into a memcpy.
    // SAFETY: the caller guarantees that it is readable.
    let value = unsafe { src.wrapping_add(at).read_volatile() };
    // SAFETY: the caller guarantees that it is writable.
    unsafe { dst.wrapping_add(at).write_volatile(value) };
}

/// Writes the low byte of a number `n` times and returns the sink.
///
/// # Safety
/// `dst` is writable for `n` bytes.
#[cold]
pub unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    for at in 0..n {
        // SAFETY: `at < n`. Volatile as above.
        unsafe { dst.wrapping_add(at).write_volatile(byte as u8) };
    }
    dst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_overlap_is_moved_right() {
        for to in 0..32 {
            let mut bytes: Vec<u8> = (0..64).collect();
            let base = bytes.as_mut_ptr();
            // SAFETY: 16 to 32 and `to` to `to + 16` lie inside the 64.
            unsafe { move_(base.wrapping_add(to), base.wrapping_add(16), 16) };
            let moved: Vec<u8> = (16..32).collect();
            assert_eq!(bytes[to..to + 16], moved, "{to}");
        }
        let mut bytes = [0; 5];
        // SAFETY: three of the five bytes.
        unsafe { fill(bytes.as_mut_ptr(), 7, 3) };
        assert_eq!(bytes, [7, 7, 7, 0, 0]);
    }
}
