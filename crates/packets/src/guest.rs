//! The guest behind a port: sends packets and reads the headers of received ones. On request it compares every byte.

use crate::queue::{BATCH, ENTRIES, HEADER, PacketQueue, STRIDE};

/// Number of bytes that the guest writes at the start of a packet: an Ethernet header, a sequence number and the buffer
/// number.
pub const HEAD: usize = 24;
const FILLER: u8 = 0xee;
/// Two MAC addresses and an EtherType, written as one array. Writing them one by one takes more store instructions than
/// the counterpart in C has.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];

/// One guest, with its two queues.
pub struct Guest<'q> {
    sends: &'q PacketQueue,
    receives: &'q PacketQueue,
    sizes: &'q [u16],
    next_size: usize,
    sent: u64,
    received: u64,
    bytes: u64,
    looks: bool,
    /// Combines the headers read, so that the compiler does not remove the reads.
    sum: u64,
    wrong: Option<String>,
}

impl<'q> Guest<'q> {
    /// Creates a guest that owns all buffers of both queues. If `looks` is `true`, the guest compares every byte.
    pub fn new(
        sends: &'q PacketQueue,
        receives: &'q PacketQueue,
        sizes: &'q [u16],
        looks: bool,
    ) -> Self {
        let (sent, received) = (sends.posted(), receives.done());
        for number in 0..ENTRIES as u64 {
            // SAFETY: neither queue is in use, because all posted buffers have been returned.
            let bytes = unsafe { sends.bytes(number) };
            let body = bytes.iter_mut().skip(HEADER).enumerate();
            body.for_each(|(at, byte)| *byte = pattern(number as u16, at));
            // SAFETY: as above.
            unsafe { receives.bytes(number) }.fill(FILLER);
        }
        receives.post(received + ENTRIES as u64);
        Self {
            sends,
            receives,
            sizes,
            next_size: 0,
            sent,
            received,
            bytes: 0,
            looks,
            sum: 0,
            wrong: None,
        }
    }

    /// Sends up to a batch and receives all available packets. Returns the number received.
    #[inline(always)]
    pub fn step(&mut self, limit: u64) -> u64 {
        let room = self.sends.done() + ENTRIES as u64 - self.sent;
        let count = room.min(BATCH as u64).min(limit);
        for number in self.sent..self.sent + count {
            self.write(number);
        }
        self.sent += count;
        self.sends.post(self.sent);
        self.take_in()
    }

    /// Receives all available packets. Returns their number.
    #[inline(always)]
    pub fn take_in(&mut self) -> u64 {
        let (first, end) = (self.received, self.receives.done());
        // Local variables stay in registers. If these sums were fields of the guest, each packet would wait for the
        // store of the previous one.
        let (mut sum, mut bytes) = (self.sum, self.bytes);
        for number in first..end {
            bytes += self.read(number, &mut sum);
        }
        (self.sum, self.bytes) = (sum, bytes);
        self.received = end;
        self.receives.post(end + ENTRIES as u64);
        end - first
    }

    /// Returns the total size of the received packets, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of packets sent on these queues, including those of earlier guests.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the sum over the headers, or the first error found if the guest compared the bytes.
    pub fn verdict(self) -> Result<u64, String> {
        self.wrong.map_or(Ok(self.sum), Err)
    }

    #[inline(always)]
    fn write(&mut self, number: u64) {
        let size = usize::from(self.sizes[self.next_size]);
        self.next_size += 1;
        if self.next_size == self.sizes.len() {
            self.next_size = 0;
        }
        // SAFETY: the number is at or after `posted`, so the guest owns the buffer, and no other reference exists.
        let buffer = unsafe { self.sends.bytes(number) };
        let packet = &mut buffer[HEADER..];
        packet[..14].copy_from_slice(&ETHERNET);
        packet[14..22].copy_from_slice(&number.to_le_bytes());
        packet[22..24].copy_from_slice(&((number as usize % ENTRIES) as u16).to_le_bytes());
        self.sends.set_len(number, HEADER + size);
    }

    /// Reads a header. Returns the size of the packet, in bytes.
    #[inline(always)]
    fn read(&mut self, number: u64, sum: &mut u64) -> u64 {
        let len = self.receives.len(number);
        // SAFETY: the number is below `done`, so the guest owns the buffer, and no other reference exists.
        let buffer = unsafe { self.receives.bytes(number) };
        let mut word = [0; 8];
        for at in [0, HEADER, HEADER + 14] {
            word.copy_from_slice(&buffer[at..at + 8]);
            *sum = sum.rotate_left(1) ^ u64::from_le_bytes(word);
        }
        if self.looks {
            if let Err(what) = whole(buffer, len, number) {
                self.wrong.get_or_insert(what);
            }
            buffer.fill(FILLER);
        }
        (len - HEADER.min(len)) as u64
    }
}

fn pattern(buffer: u16, at: usize) -> u8 {
    (usize::from(buffer) * 31 + at * 7 + (at >> 8)) as u8
}

/// Checks that packet `number` has the contents sent with that number, with swapped addresses, and that no byte after it was
/// changed.
fn whole(buffer: &[u8], len: usize, number: u64) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("packet {number}: {what}"));
    if !(HEADER + HEAD..=STRIDE).contains(&len) {
        return wrong("the length differs from all lengths that were sent");
    }
    let packet = &buffer[HEADER..len];
    if packet[..12] != [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1] {
        return wrong("the addresses differ from the sent ones after the swap");
    }
    if packet[14..22] != number.to_le_bytes() {
        return wrong("another packet arrived instead");
    }
    let from = u16::from_le_bytes([packet[22], packet[23]]);
    if let Some(at) = (HEAD..packet.len()).find(|at| packet[*at] != pattern(from, *at)) {
        return Err(format!("packet {number}: a wrong byte at {at} of {}", packet.len()));
    }
    if buffer[len..].iter().any(|byte| *byte != FILLER) {
        return wrong("bytes after the packet were overwritten");
    }
    Ok(())
}
