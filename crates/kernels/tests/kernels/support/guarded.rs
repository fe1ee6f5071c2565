//! Memory between pages that may not be touched.

pub const PAGE: usize = 4096;
/// Bytes between the guards.
pub const ROOM: usize = 3 * PAGE;

/// Pages that can be used between two that cannot.
pub struct Guarded(*mut u8);

impl Guarded {
    pub fn new() -> Self {
        let size = ROOM + 2 * PAGE;
        let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping where the kernel likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        let room = base.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: the middle of the mapping made above.
        let done = unsafe { libc::mprotect(room.cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
        Guarded(room)
    }

    /// The first bytes behind the lower guard, or the last before the upper one.
    pub fn part(&mut self, n: usize, at_end: bool) -> &mut [u8] {
        let start = if at_end { ROOM - n } else { 0 };
        // SAFETY: inside the usable pages, which live as long as self, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.wrapping_add(start), n) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let base = self.0.wrapping_sub(PAGE);
        // SAFETY: the whole mapping of `new`, of which no borrow is left.
        unsafe { libc::munmap(base.cast(), ROOM + 2 * PAGE) };
    }
}
