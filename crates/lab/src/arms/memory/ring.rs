//! A ring of packets in one thread, as in a software switch: a header and a copy of the packet are written, and both
//! are read one batch later.

use thalweg_kernels::Ready;

use super::{RepeatedCopy, buffers::SPOILT};
use thalweg_measure::arms::content::ByteContent;
use thalweg_measure::scratch::room_for;

/// The header that vhost writes before each packet: virtio_net_hdr_mrg_rxbuf.
const HEADER: usize = 12;
/// Packets that are written before the first is read, as in DPDK's loops.
const BATCH: usize = 32;
/// The part of a packet that a forwarder reads: the addresses of an Ethernet frame.
const ADDRESSES: usize = 12;
const LINE: usize = 64;

/// A ring of slots, and the packets that are copied into the slots.
pub struct CopyRing {
    kernel: Ready,
    bytes: usize,
    stride: usize,
    slots: usize,
    packets: Vec<u8>,
    filled: Vec<u8>,
    /// The next slot to fill.
    at: usize,
    count: u64,
}

impl CopyRing {
    /// Creates a ring for packets of `bytes`, over `working_set` bytes of packets and slots, with at least two
    /// batches.
    pub fn new(kernel: Ready, bytes: usize, working_set: usize) -> Self {
        let stride = (HEADER + bytes).next_multiple_of(LINE);
        let slots = (working_set / 2 / stride).max(2 * BATCH);
        let (packets, filled) = (Vec::new(), Vec::new());
        Self { kernel, bytes, stride, slots, packets, filled, at: 0, count: 0 }
    }

    #[inline]
    fn enqueue(&mut self) {
        let start = self.at * self.stride;
        let (header, rest) = self.filled[start..start + self.stride].split_at_mut(HEADER);
        header[..8].copy_from_slice(&self.count.to_le_bytes());
        header[8..].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        self.kernel.copy(&mut rest[..self.bytes], &self.packets[start..start + self.bytes]);
        self.count = self.count.wrapping_add(1);
        self.at = if self.at + 1 == self.slots { 0 } else { self.at + 1 };
    }

    /// Returns the header and the addresses, combined into one number.
    #[inline]
    fn dequeue(&self, slot: usize) -> u64 {
        let slot = &self.filled[slot * self.stride..(slot + 1) * self.stride];
        let (header, packet) = slot.split_at(HEADER);
        let word =
            |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| (sum << 5) ^ u64::from(*byte));
        word(header) ^ word(&packet[..ADDRESSES.min(self.bytes)])
    }

    /// Checks that the slot contains the packet with this number, and that no byte after the packet was written.
    fn look(&self, slot: usize, number: u64) -> Result<(), String> {
        let name = self.kernel.kernel().name;
        let start = slot * self.stride;
        let (header, rest) = self.filled[start..start + self.stride].split_at(HEADER);
        let (packet, behind) = rest.split_at(self.bytes);
        if header[..8] != number.to_le_bytes() {
            return Err(format!("kernel {name}: a header in the ring does not match its packet"));
        }
        if packet != &self.packets[start..start + self.bytes] {
            return Err(format!(
                "kernel {name}: a packet in the ring differs from the data written"
            ));
        }
        if behind.iter().any(|byte| *byte != SPOILT) {
            return Err(format!("kernel {name}: bytes after a packet were overwritten"));
        }
        Ok(())
    }

    /// Fills this number of slots, then reads them.
    #[inline]
    fn batch(&mut self, packets: usize) -> u64 {
        let first = self.at;
        (0..packets).for_each(|_| self.enqueue());
        let slots = (0..packets).map(|n| (first + n) % self.slots);
        slots.fold(0, |sum, slot| sum.wrapping_add(self.dequeue(slot)))
    }
}

impl RepeatedCopy for CopyRing {
    fn allocate(&mut self) -> Result<(), String> {
        let len = self.slots * self.stride;
        room_for(2 * len)?;
        self.packets = vec![0; len];
        ByteContent::Pattern.fill(0, &mut self.packets);
        self.filled = vec![1; len];
        Ok(())
    }

    fn copy(&mut self, times: u32) -> u64 {
        let (mut left, mut sum) = (times as usize, 0_u64);
        while left > 0 {
            let packets = left.min(BATCH);
            sum = sum.wrapping_add(self.batch(packets));
            left -= packets;
        }
        sum
    }

    fn verify(&mut self) -> Result<(), String> {
        self.filled.fill(SPOILT);
        let (first, counted) = (self.at, self.count);
        self.batch(BATCH);
        (0..BATCH)
            .try_for_each(|n| self.look((first + n) % self.slots, counted.wrapping_add(n as u64)))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_in_a_slot_is_found() {
        let kernel =
            thalweg_kernels::by_name("libc").and_then(thalweg_kernels::Kernel::ready).unwrap();
        let mut ring = CopyRing::new(kernel, 100, 4096);
        ring.allocate().unwrap();
        ring.verify().unwrap();
        let (slot, number) = (ring.at - 1, ring.count - 1);
        let start = slot * ring.stride;
        for (at, what) in [(0, "header"), (HEADER + 99, "packet"), (HEADER + 100, "after a packet")]
        {
            ring.filled[start + at] ^= 1;
            assert!(ring.look(slot, number).unwrap_err().contains(what));
            ring.filled[start + at] ^= 1;
            ring.look(slot, number).unwrap();
        }
    }
}
