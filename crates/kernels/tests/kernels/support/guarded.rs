//! Memory between inaccessible pages.

pub const PAGE: usize = 4096;
/// Bytes between the guards.
pub const ROOM: usize = 3 * PAGE;

/// Accessible pages between two inaccessible ones. Holds the address of the first accessible byte.
pub struct Guarded(*mut u8);

impl Guarded {
    pub fn new() -> Self {
        let size = ROOM + 2 * PAGE;
        let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        let room = base.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: the range is the middle of the new mapping.
        let done = unsafe { libc::mprotect(room.cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
        Guarded(room)
    }

    /// Returns the first `n` bytes after the lower guard page, or the last `n` before the upper
    /// one.
    pub fn part(&mut self, n: usize, at_end: bool) -> &mut [u8] {
        let start = if at_end { ROOM - n } else { 0 };
        // SAFETY: the bytes are inside the accessible pages, which live as long as self, and self
        // is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.wrapping_add(start), n) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let base = self.0.wrapping_sub(PAGE);
        // SAFETY: the range is the whole mapping of `new`, and no borrow of it is left.
        unsafe { libc::munmap(base.cast(), ROOM + 2 * PAGE) };
    }
}
