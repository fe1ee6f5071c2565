//! The words at the start of a memory file. Only the owner of the file writes them, and the peer maps them read-only.
//! Each word that changes often occupies 128 bytes, because processors fetch cache lines in pairs.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire};
use thalweg_sys::futex::OWNER_DIED;
use thalweg_sys::robust::RobustNode;

/// Maximum number of unread notes in one direction of a bulk transfer. The protocol needs three at most.
pub(crate) const UNREAD: u64 = 8;
/// Distance between the starts of two notes, in 64-bit words.
const NOTE_APART: usize = 8;

/// A value that occupies 128 bytes (two cache lines) alone, to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct CacheLines<T>(pub T);

#[repr(C)]
#[derive(Debug)]
pub(crate) struct SideWords {
    /// Offset 0: the fields of [`crate::layout::Geometry`]. They are copied out once and never read again, because the
    /// owner could change them.
    fixed: CacheLines<UnsafeCell<[u8; 128]>>,
    /// Offset 128: on a ring, the head or tail in bytes. In a bulk transfer, the number of notes sent.
    pub cursor: CacheLines<AtomicU64>,
    /// Offset 256: the number of wake-ups that the owner sent. The peer sleeps on this word.
    pub wake: CacheLines<AtomicU32>,
    /// Offset 384: whether the owner sleeps, and on what.
    pub waiting: CacheLines<AtomicU32>,
    /// Offset 512: the words that show whether the owner lives and has its end open.
    pub alive: CacheLines<Alive>,
    /// Offset 640: in a bulk transfer, the number of slots that the owner has filled or emptied. 0 on a ring.
    pub slots: CacheLines<AtomicU64>,
    /// Offset 768: the notes of the owner in a bulk transfer. 0 on a ring.
    pub notes: CacheLines<[[AtomicU64; NOTE_APART]; UNREAD as usize]>,
}

/// The words that show whether the owner lives and has its end open.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Alive {
    /// Node of the kernel's robust list. The kernel sets a bit in its word when the owner dies.
    pub node: RobustNode,
    /// 1 after the owner has closed its end.
    pub closed: AtomicU32,
}

const _: () = {
    assert!(std::mem::offset_of!(SideWords, cursor) == 128);
    assert!(std::mem::offset_of!(SideWords, wake) == 256);
    assert!(std::mem::offset_of!(SideWords, waiting) == 384);
    assert!(std::mem::offset_of!(SideWords, alive) == 512);
    assert!(std::mem::offset_of!(Alive, closed) == 16);
    assert!(std::mem::offset_of!(SideWords, slots) == 640);
    assert!(std::mem::offset_of!(SideWords, notes) == 768);
    assert!(size_of::<SideWords>() == 1280);
    assert!(cfg!(target_endian = "little"), "the words are little endian and used in place");
};

impl SideWords {
    /// Returns `true` if the owner has closed its end.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.alive.0.closed.load(Acquire) != 0
    }

    /// Returns the word in which the kernel will mark the owner's death; 0 if it will not.
    #[inline]
    pub fn life(&self) -> u32 {
        self.alive.0.node.word.load(Acquire)
    }

    /// Returns `true` if the kernel has marked the owner's death.
    #[inline]
    pub fn has_died(&self) -> bool {
        self.life() & OWNER_DIED != 0
    }
}
