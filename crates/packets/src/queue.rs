//! One direction of a virtio-like queue: buffers of the guest, and two counters that determine the owner of each buffer.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::memory::PacketMemory;

/// Number of buffers of a queue.
pub const ENTRIES: usize = 256;
/// Distance between two buffers, in bytes.
pub const STRIDE: usize = 2048;
/// `struct virtio_net_hdr_mrg_rxbuf` (virtio 1.2, 5.1.6). A packet follows its header, so copies start at a multiple of
/// 4 bytes that is not a multiple of 16.
pub const HEADER: usize = 12;
/// Maximum number of packets in a batch, as DPDK's `MAX_PKT_BURST`.
pub const BATCH: usize = 32;

/// A counter on its own pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// Buffers with ever increasing numbers. Those from `done` to `posted` belong to the switch, all others to the guest. Each
/// counter has a single writer.
#[derive(Debug)]
pub struct PacketQueue {
    memory: PacketMemory,
    lens: Box<[AtomicU32; ENTRIES]>,
    posted: PaddedCounter,
    done: PaddedCounter,
}

impl PacketQueue {
    /// Creates a queue in which the guest owns all buffers.
    pub fn new() -> Self {
        Self {
            memory: PacketMemory::new(ENTRIES * STRIDE),
            lens: Box::new([const { AtomicU32::new(0) }; ENTRIES]),
            posted: PaddedCounter::default(),
            done: PaddedCounter::default(),
        }
    }

    /// Returns the address of a buffer.
    #[inline(always)]
    pub fn buffer(&self, number: u64) -> *mut u8 {
        self.memory.at(number as usize % ENTRIES * STRIDE)
    }

    /// Returns the address of the packet in a buffer, after its header.
    #[inline(always)]
    pub fn packet(&self, number: u64) -> *mut u8 {
        self.memory.at(number as usize % ENTRIES * STRIDE + HEADER)
    }

    /// Returns a buffer as a slice.
    ///
    /// # Safety
    /// The buffer belongs to the caller's side, and this is the only reference to it.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the agreement is the caller's to keep")]
    pub unsafe fn bytes(&self, number: u64) -> &mut [u8] {
        // SAFETY: the modulo selects one of the allocated buffers. The caller guarantees that no other reference to it
        // exists.
        unsafe { self.memory.bytes(number as usize % ENTRIES * STRIDE, STRIDE) }
    }

    /// Returns the number of bytes in a buffer, including the header.
    #[inline(always)]
    pub fn len(&self, number: u64) -> usize {
        // Relaxed: the Release store of the counter that hands the buffer over also publishes its length.
        (self.lens[number as usize % ENTRIES].load(Relaxed) as usize).min(STRIDE)
    }

    /// Sets the number of bytes in a buffer.
    #[inline(always)]
    pub fn set_len(&self, number: u64, len: usize) {
        self.lens[number as usize % ENTRIES].store(len as u32, Relaxed);
    }

    /// Returns the number of buffers handed to the switch so far. PAIRS WITH: [`post`](Self::post).
    #[inline(always)]
    pub fn posted(&self) -> u64 {
        self.posted.0.load(Acquire)
    }

    /// Returns the number of buffers returned by the switch so far. PAIRS WITH: [`finish`](Self::finish).
    #[inline(always)]
    pub fn done(&self) -> u64 {
        self.done.0.load(Acquire)
    }

    /// Hands all buffers below `number` to the switch. Called by the guest.
    #[inline(always)]
    pub fn post(&self, number: u64) {
        self.posted.0.store(number, Release);
    }

    /// Returns all buffers below `number` to the guest. Called by the switch.
    #[inline(always)]
    pub fn finish(&self, number: u64) {
        self.done.0.store(number, Release);
    }
}
