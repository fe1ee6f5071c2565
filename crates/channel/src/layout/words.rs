//! The words at the start of a memory file. The owner of the file alone writes them; the other side
//! has them mapped for reading. Words that change often have 128 bytes each to themselves, because
//! processors fetch cache lines in pairs.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire};
use thalweg_sys::futex::OWNER_DIED;
use thalweg_sys::robust::Node;

/// Notes of a bulk transfer that may lie unread in one direction. A transfer needs three at most.
pub(crate) const UNREAD: u64 = 8;
/// 64-bit words between the notes.
const NOTE_APART: usize = 8;

/// 128 bytes that nothing else shares.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Pair<T>(pub T);

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Words {
    /// 0: [`crate::layout::Geometry`], copied out once and never looked at again: its owner could
    /// change it.
    fixed: Pair<UnsafeCell<[u8; 128]>>,
    /// 128: on a ring the head or the tail, in bytes; in a bulk transfer the number of notes told.
    pub cursor: Pair<AtomicU64>,
    /// 256: counts the wake-ups given to the other side, which sleeps on it.
    pub wake: Pair<AtomicU32>,
    /// 384: whether and how the owner sleeps.
    pub waiting: Pair<AtomicU32>,
    /// 512
    pub alive: Pair<Alive>,
    /// 640: in a bulk transfer the number of slots filled, or emptied; 0 on a ring.
    pub slots: Pair<AtomicU64>,
    /// 768: the notes of a bulk transfer; zero on a ring.
    pub notes: Pair<[[AtomicU64; NOTE_APART]; UNREAD as usize]>,
}

/// The words about the owner's life.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Alive {
    /// The kernel marks its word when the owner dies.
    pub node: Node,
    /// 1 after the owner has closed its end.
    pub closed: AtomicU32,
}

const _: () = {
    assert!(std::mem::offset_of!(Words, cursor) == 128);
    assert!(std::mem::offset_of!(Words, wake) == 256);
    assert!(std::mem::offset_of!(Words, waiting) == 384);
    assert!(std::mem::offset_of!(Words, alive) == 512);
    assert!(std::mem::offset_of!(Alive, closed) == 16);
    assert!(std::mem::offset_of!(Words, slots) == 640);
    assert!(std::mem::offset_of!(Words, notes) == 768);
    assert!(size_of::<Words>() == 1280);
    assert!(cfg!(target_endian = "little"), "the words are little endian and used in place");
};

impl Words {
    /// Whether the owner has closed its end.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.alive.0.closed.load(Acquire) != 0
    }

    /// The kernel's word about the owner: 0 if the kernel will not mark it.
    #[inline]
    pub fn life(&self) -> u32 {
        self.alive.0.node.word.load(Acquire)
    }

    /// Whether the kernel has marked the owner's death.
    #[inline]
    pub fn has_died(&self) -> bool {
        self.life() & OWNER_DIED != 0
    }
}
