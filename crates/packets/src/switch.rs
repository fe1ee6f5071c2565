//! The switch between the ports. It copies packets from one guest into packet buffers, reads and changes their headers, and
//! copies them into the other guest, a batch at a time.
//!
//! The structure follows DPDK's vhost functions `rte_vhost_dequeue_burst` and `rte_vhost_enqueue_burst`.

use std::mem::MaybeUninit;

use thalweg_kernels::KERNELS;

use crate::copier::{Called, CopierChoice, Inlined, Library, PacketCopier};
use crate::memory::PacketMemory;
use crate::queue::{BATCH, ENTRIES, HEADER, PacketQueue, STRIDE};

/// Bytes before a packet in its buffer, like DPDK's `RTE_PKTMBUF_HEADROOM`.
const HEADROOM: usize = 128;
const MBUF: usize = STRIDE + HEADROOM;

/// Packet buffers, used in turn, so that all of them form the working set.
#[derive(Debug)]
pub struct BufferRing {
    memory: PacketMemory,
    /// Ring of buffer numbers; its length is a power of two. The free buffers lie from `first` to `last`. Both indexes
    /// only increase.
    ring: Vec<u32>,
    first: usize,
    last: usize,
}

impl BufferRing {
    /// Creates a pool of `count` buffers, at least one batch.
    pub fn new(count: u32) -> Self {
        let count = count.max(BATCH as u32);
        let mut ring: Vec<u32> = (0..count).collect();
        ring.resize(ring.len().next_power_of_two(), 0);
        let memory = PacketMemory::new(count as usize * MBUF);
        Self { memory, ring, first: 0, last: count as usize }
    }

    #[inline(always)]
    fn free(&self) -> usize {
        self.last - self.first
    }

    #[inline(always)]
    fn nth_free(&self, n: usize) -> u32 {
        let place = (self.first + n) & (self.ring.len() - 1);
        // SAFETY: the index is masked with the last index of a ring whose length is a power of two.
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

/// A batch function that is compiled for one kernel.
pub type Forward = fn(CopierChoice, &PacketQueue, &PacketQueue, &mut BufferRing) -> u64;

/// Returns the batch function of a kernel. The caller must pass the same kernel as the first argument of that function.
pub fn forward_of(choice: CopierChoice) -> Forward {
    match choice {
        CopierChoice::Library => |_, from, to, pool| forward(&Library, from, to, pool),
        CopierChoice::Row(_) => |choice, from, to, pool| {
            let CopierChoice::Row(row) = choice else { return 0 };
            forward(&Called(KERNELS[row].copy), from, to, pool)
        },
        #[cfg(target_arch = "x86_64")]
        CopierChoice::InlineSse2 => |_, from, to, pool| {
            forward(&Inlined::<std::arch::x86_64::__m128i>::new(), from, to, pool)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `CopierChoice::all` and `CopierChoice::named` return this kernel only if the CPU has AVX2.
        CopierChoice::InlineAvx2 => |_, from, to, pool| unsafe { forward_avx2(from, to, pool) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `CopierChoice::all` and `CopierChoice::named` return this kernel only if the CPU has AVX-512.
        CopierChoice::InlineAvx512 => |_, from, to, pool| unsafe { forward_avx512(from, to, pool) },
        #[cfg(not(target_arch = "x86_64"))]
        CopierChoice::InlineSse2 | CopierChoice::InlineAvx2 | CopierChoice::InlineAvx512 => {
            use thalweg_kernels::inline::Widest;
            |_, from, to, pool| forward(&Inlined::<Widest>::new(), from, to, pool)
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn forward_avx2(from: &PacketQueue, to: &PacketQueue, pool: &mut BufferRing) -> u64 {
    forward(&Inlined::<std::arch::x86_64::__m256i>::new(), from, to, pool)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
fn forward_avx512(from: &PacketQueue, to: &PacketQueue, pool: &mut BufferRing) -> u64 {
    forward(&Inlined::<std::arch::x86_64::__m512i>::new(), from, to, pool)
}

/// Forwards up to a batch from one queue to the other. Returns the number of packets.
#[inline(always)]
fn forward(
    copier: &impl PacketCopier,
    from: &PacketQueue,
    to: &PacketQueue,
    pool: &mut BufferRing,
) -> u64 {
    let (first, target) = (from.done(), to.done());
    let waiting = (from.posted() - first).min(to.posted() - target);
    let count = waiting.min(BATCH as u64).min(pool.free() as u64) as usize;
    // Not initialised, because the loops below write and read only the first `count` entries.
    let mut batch = [MaybeUninit::<(u32, usize)>::uninit(); BATCH];
    for (n, slot) in batch[..count].iter_mut().enumerate() {
        let number = first + n as u64;
        let len = from.len(number) - HEADER;
        let free = pool.nth_free(n);
        // SAFETY: the switch owns the source buffer, which lies between done and posted and holds HEADER + len <= STRIDE bytes.
        // The mbuf has STRIDE bytes after its headroom, and the switch owns it.
        unsafe { copier.copy(pool.packet(free), from.packet(number), len) };
        slot.write((free, len));
    }
    pool.first += count;
    from.finish(first + count as u64);
    for slot in &batch[..count] {
        // SAFETY: the loop above wrote the first `count` entries.
        let (mbuf, _) = unsafe { slot.assume_init() };
        swap_addresses(pool.packet(mbuf));
    }
    for (n, slot) in batch[..count].iter().enumerate() {
        // SAFETY: as above.
        let (mbuf, len) = unsafe { slot.assume_init() };
        let number = target + n as u64;
        let (header, packet) = (to.buffer(number), to.packet(number));
        // SAFETY: the switch owns the sink buffer, which has STRIDE bytes.
        unsafe { header.write_bytes(0, HEADER) };
        // SAFETY: as above, and len <= STRIDE - HEADER. The queue and the pool are different allocations.
        unsafe { copier.copy(packet, pool.packet(mbuf), len) };
        to.set_len(number, HEADER + len);
        pool.give_back(n, mbuf);
    }
    pool.last += count;
    to.finish(target + count as u64);
    count as u64
}

/// Swaps the two addresses of a packet that was just copied. These loads directly after the copy are slow if the copy
/// used masked stores.
///
/// Reads and writes words of four and two bytes, one by one. With six-byte values, the compiler would go through the
/// stack: one load would read two earlier stores, and must wait for both.
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

// A batch must fit into a queue.
const _: () = assert!(BATCH <= ENTRIES);

/// The batch function with a kernel that the test provides.
#[cfg(test)]
pub fn forward_with(copier: &impl PacketCopier, from: &PacketQueue, to: &PacketQueue) -> u64 {
    forward(copier, from, to, &mut BufferRing::new(64))
}
