//! The switch between the ports: packets are copied from one guest into packet buffers, their
//! headers read back and changed, and copied into the other guest, a batch at a time.
//!
//! The shape is that of DPDK's vhost `rte_vhost_dequeue_burst` and `rte_vhost_enqueue_burst`.

use std::mem::MaybeUninit;

use thalweg_kernels::KERNELS;

use crate::copier::{Called, Choice, Copier, Inlined, Library};
use crate::memory::Memory;
use crate::queue::{BATCH, ENTRIES, HEADER, Queue, STRIDE};

/// Room before a packet, as `RTE_PKTMBUF_HEADROOM`.
const HEADROOM: usize = 128;
const MBUF: usize = STRIDE + HEADROOM;

/// Packet buffers, used in turn, so that all of them are the working set.
#[derive(Debug)]
pub struct Pool {
    memory: Memory,
    /// As long as a power of two; the free ones lie from `first` to `last`, both ever growing.
    ring: Vec<u32>,
    first: usize,
    last: usize,
}

impl Pool {
    /// So many buffers, at least a batch.
    pub fn new(count: u32) -> Self {
        let count = count.max(BATCH as u32);
        let mut ring: Vec<u32> = (0..count).collect();
        ring.resize(ring.len().next_power_of_two(), 0);
        let memory = Memory::new(count as usize * MBUF);
        Self { memory, ring, first: 0, last: count as usize }
    }

    #[inline(always)]
    fn free(&self) -> usize {
        self.last - self.first
    }

    #[inline(always)]
    fn nth_free(&self, n: usize) -> u32 {
        let place = (self.first + n) & (self.ring.len() - 1);
        // SAFETY: masked by the largest place of a ring that is a power of two long.
        unsafe { *self.ring.get_unchecked(place) }
    }

    #[inline(always)]
    fn give_back(&mut self, n: usize, mbuf: u32) {
        let place = (self.last + n) & (self.ring.len() - 1);
        // SAFETY: as in `nth_free`.
        unsafe { *self.ring.get_unchecked_mut(place) = mbuf };
    }

    #[inline(always)]
    fn packet(&self, mbuf: u32) -> *mut u8 {
        self.memory.at(mbuf as usize * MBUF + HEADROOM)
    }
}

/// A batch function, compiled for one kernel.
pub type Forward = fn(Choice, &Queue, &Queue, &mut Pool) -> u64;

/// The batch function of a kernel; its first argument must be that kernel.
pub fn forward_of(choice: Choice) -> Forward {
    match choice {
        Choice::Library => |_, from, to, pool| forward(&Library, from, to, pool),
        Choice::Row(_) => |choice, from, to, pool| {
            let Choice::Row(row) = choice else { return 0 };
            forward(&Called(KERNELS[row].copy), from, to, pool)
        },
        #[cfg(target_arch = "x86_64")]
        Choice::InlineSse2 => |_, from, to, pool| {
            forward(&Inlined::<std::arch::x86_64::__m128i>::new(), from, to, pool)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Choice::all` and `Choice::named` give it only where the CPU has AVX2.
        Choice::InlineAvx2 => |_, from, to, pool| unsafe { forward_avx2(from, to, pool) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same for AVX-512.
        Choice::InlineAvx512 => |_, from, to, pool| unsafe { forward_avx512(from, to, pool) },
        #[cfg(not(target_arch = "x86_64"))]
        Choice::InlineSse2 | Choice::InlineAvx2 | Choice::InlineAvx512 => {
            use thalweg_kernels::inline::Widest;
            |_, from, to, pool| forward(&Inlined::<Widest>::new(), from, to, pool)
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn forward_avx2(from: &Queue, to: &Queue, pool: &mut Pool) -> u64 {
    forward(&Inlined::<std::arch::x86_64::__m256i>::new(), from, to, pool)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
fn forward_avx512(from: &Queue, to: &Queue, pool: &mut Pool) -> u64 {
    forward(&Inlined::<std::arch::x86_64::__m512i>::new(), from, to, pool)
}

/// Forwards up to a batch from one queue to the other and says how many packets.
#[inline(always)]
fn forward(copier: &impl Copier, from: &Queue, to: &Queue, pool: &mut Pool) -> u64 {
    let (first, target) = (from.done(), to.done());
    let waiting = (from.posted() - first).min(to.posted() - target);
    let count = waiting.min(BATCH as u64).min(pool.free() as u64) as usize;
    // Only what the batch holds is ever written.
    let mut batch = [MaybeUninit::<(u32, usize)>::uninit(); BATCH];
    for (n, slot) in batch[..count].iter_mut().enumerate() {
        let number = first + n as u64;
        let len = from.len(number) - HEADER;
        let free = pool.nth_free(n);
        // SAFETY: the source buffer is the switch's, between done and posted, and holds
        // HEADER + len <= STRIDE bytes; an mbuf has STRIDE bytes behind its headroom, and is ours.
        unsafe { copier.copy(pool.packet(free), from.packet(number), len) };
        slot.write((free, len));
    }
    pool.first += count;
    from.finish(first + count as u64);
    for slot in &batch[..count] {
        // SAFETY: the loop above wrote the first `count`.
        let (mbuf, _) = unsafe { slot.assume_init() };
        swap_addresses(pool.packet(mbuf));
    }
    for (n, slot) in batch[..count].iter().enumerate() {
        // SAFETY: as above.
        let (mbuf, len) = unsafe { slot.assume_init() };
        let number = target + n as u64;
        let (header, packet) = (to.buffer(number), to.packet(number));
        // SAFETY: the sink buffer is the switch's and has STRIDE bytes.
        unsafe { header.write_bytes(0, HEADER) };
        // SAFETY: as above, len <= STRIDE - HEADER; queue and pool are different memory.
        unsafe { copier.copy(packet, pool.packet(mbuf), len) };
        to.set_len(number, HEADER + len);
        pool.give_back(n, mbuf);
    }
    pool.last += count;
    to.finish(target + count as u64);
    count as u64
}

/// Reads the addresses that were just copied and writes them back swapped: the load right behind
/// the copy is what punishes masked stores.
///
/// In words of four and two bytes, one by one: as six bytes the compiler takes both over the stack, and reads
/// there in one what two stores have just written, which waits for both.
#[inline(always)]
#[expect(clippy::cast_ptr_alignment, reason = "read and written as what it is: unaligned")]
fn swap_addresses(packet: *mut u8) {
    let word = |at: usize| packet.wrapping_add(at).cast::<u32>();
    let half = |at: usize| packet.wrapping_add(at).cast::<u16>();
    // SAFETY: a packet buffer is longer than two addresses.
    let to = (unsafe { word(0).read_unaligned() }, unsafe { half(4).read_unaligned() });
    // SAFETY: the second address.
    let from = (unsafe { word(6).read_unaligned() }, unsafe { half(10).read_unaligned() });
    // SAFETY: as above.
    unsafe { word(0).write_unaligned(from.0) };
    // SAFETY: as above.
    unsafe { half(4).write_unaligned(from.1) };
    // SAFETY: as above.
    unsafe { word(6).write_unaligned(to.0) };
    // SAFETY: as above.
    unsafe { half(10).write_unaligned(to.1) };
}

// What a queue holds must fit what is posted of it.
const _: () = assert!(BATCH <= ENTRIES);

/// The batch function with a kernel of the test's.
#[cfg(test)]
pub fn forward_with(copier: &impl Copier, from: &Queue, to: &Queue) -> u64 {
    forward(copier, from, to, &mut Pool::new(64))
}
