//! One direction of a virtio-like queue: buffers of the guest, and two counters that say whose they
//! are.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::memory::Memory;

/// Buffers of a queue.
pub const ENTRIES: usize = 256;
/// Bytes from one buffer to the next.
pub const STRIDE: usize = 2048;
/// `struct virtio_net_hdr_mrg_rxbuf` (virtio 1.2, 5.1.6): it is why copies start at a multiple of
/// four and not of sixteen.
pub const HEADER: usize = 12;
/// The most that a batch holds, as DPDK's `MAX_PKT_BURST`.
pub const BATCH: usize = 32;

/// A counter alone on its pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// Buffers with ever growing numbers: those from `done` to `posted` are the switch's, all others the
/// guest's. Each counter has one writer.
#[derive(Debug)]
pub struct Queue {
    memory: Memory,
    lens: Box<[AtomicU32; ENTRIES]>,
    posted: Alone,
    done: Alone,
}

impl Queue {
    /// All buffers with the guest.
    pub fn new() -> Self {
        Self {
            memory: Memory::new(ENTRIES * STRIDE),
            lens: Box::new([const { AtomicU32::new(0) }; ENTRIES]),
            posted: Alone::default(),
            done: Alone::default(),
        }
    }

    /// Where a buffer begins.
    #[inline(always)]
    pub fn buffer(&self, number: u64) -> *mut u8 {
        self.memory.at(number as usize % ENTRIES * STRIDE)
    }

    /// Where the packet in a buffer begins, behind its header.
    #[inline(always)]
    pub fn packet(&self, number: u64) -> *mut u8 {
        self.memory.at(number as usize % ENTRIES * STRIDE + HEADER)
    }

    /// A buffer as a slice.
    ///
    /// # Safety
    /// The buffer is the caller's side's, and this the only reference to it.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the agreement is the caller's to keep")]
    pub unsafe fn bytes(&self, number: u64) -> &mut [u8] {
        // SAFETY: one of the buffers that were allocated; the rest is the caller's promise.
        unsafe { self.memory.bytes(number as usize % ENTRIES * STRIDE, STRIDE) }
    }

    /// Bytes in a buffer, header included.
    #[inline(always)]
    pub fn len(&self, number: u64) -> usize {
        // Published by the counter that hands the buffer over.
        (self.lens[number as usize % ENTRIES].load(Relaxed) as usize).min(STRIDE)
    }

    /// Says how many bytes are in a buffer.
    #[inline(always)]
    pub fn set_len(&self, number: u64, len: usize) {
        self.lens[number as usize % ENTRIES].store(len as u32, Relaxed);
    }

    /// Buffers handed to the switch so far. PAIRS WITH [`Queue::post`].
    #[inline(always)]
    pub fn posted(&self) -> u64 {
        self.posted.0.load(Acquire)
    }

    /// Buffers handed back so far. PAIRS WITH [`Queue::finish`].
    #[inline(always)]
    pub fn done(&self) -> u64 {
        self.done.0.load(Acquire)
    }

    /// The guest hands over everything below `number`.
    #[inline(always)]
    pub fn post(&self, number: u64) {
        self.posted.0.store(number, Release);
    }

    /// The switch hands back everything below `number`.
    #[inline(always)]
    pub fn finish(&self, number: u64) {
        self.done.0.store(number, Release);
    }
}
