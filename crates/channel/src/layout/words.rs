//! The words at the start of a memory file. Only the owner of the file writes them; the peer maps them
//! read-only. Words that change often occupy 128 bytes each, because processors fetch cache lines in
//! pairs.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire};
use thalweg_sys::futex::OWNER_DIED;
use thalweg_sys::robust::RobustNode;

/// Maximum number of unread notes in one direction of a bulk transfer. A transfer needs three at most.
pub(crate) const UNREAD: u64 = 8;
/// Distance between two notes, in 64-bit words.
const NOTE_APART: usize = 8;

/// A value alone in 128 bytes (two cache lines), to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct CacheLines<T>(pub T);

#[repr(C)]
#[derive(Debug)]
pub(crate) struct SideWords {
    /// Offset 0: [`crate::layout::Geometry`]. It is copied out once and never read again, because its
    /// owner could change it.
    fixed: CacheLines<UnsafeCell<[u8; 128]>>,
    /// Offset 128: on a ring, the head or tail in bytes; in a bulk transfer, the number of notes sent.
    pub cursor: CacheLines<AtomicU64>,
    /// Offset 256: counts the wake-ups sent to the peer; the peer sleeps on this word.
    pub wake: CacheLines<AtomicU32>,
    /// Offset 384: if and how the owner sleeps.
    pub waiting: CacheLines<AtomicU32>,
    /// Offset 512: the words that show if the owner lives and if its end is open.
    pub alive: CacheLines<Alive>,
    /// Offset 640: in a bulk transfer, the number of slots filled or emptied; 0 on a ring.
    pub slots: CacheLines<AtomicU64>,
    /// Offset 768: the notes of a bulk transfer; zero on a ring.
    pub notes: CacheLines<[[AtomicU64; NOTE_APART]; UNREAD as usize]>,
}

/// The words that show if the owner lives and if its end is open.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Alive {
    /// The kernel sets a bit in the word of this robust-list node when the owner dies.
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

    /// Returns the word that the kernel marks on the owner's death; 0 if the kernel will not mark it.
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
