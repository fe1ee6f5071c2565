//! Copies between pairs of buffers that follow one another over a stretch of memory.

use thalweg_kernels::{Ready, crc32c};

use super::{Copies, pattern, span::room_for};

/// The longest line a processor has, and the reach of its neighbour prefetcher.
const LINE: usize = 128;
/// What a sink holds before a copy is verified.
const SPOILT: u8 = 0xee;
/// So many sinks are looked at byte by byte; every one is as good as another.
const MOST_VERIFIED: usize = 64;

/// Sources one after another, and sinks.
pub struct Stretch {
    kernel: Ready,
    bytes: usize,
    /// From one buffer to the next; whole lines.
    stride: usize,
    pairs: usize,
    /// Of the sink, from its line.
    offset: usize,
    /// From the beginning of `sinks` to the first line.
    lead: usize,
    sources: Vec<u8>,
    sinks: Vec<u8>,
    at: usize,
    /// Whether the copy's checksum is taken.
    checksum: bool,
}

impl Stretch {
    /// Pairs of `bytes` over `span` bytes in all, at least one; nothing is allocated yet.
    pub fn new(kernel: Ready, bytes: usize, span: usize, offset: usize) -> Self {
        let stride = (bytes + offset).next_multiple_of(LINE);
        let pairs = (span / 2 / stride).max(1);
        let (sources, sinks) = (Vec::new(), Vec::new());
        Self {
            kernel,
            bytes,
            stride,
            pairs,
            offset,
            lead: 0,
            sources,
            sinks,
            at: 0,
            checksum: false,
        }
    }

    /// The same, and every copy's checksum is taken.
    pub fn with_checksum(self) -> Self {
        Self { checksum: true, ..self }
    }

    fn sink(&self, pair: usize) -> std::ops::Range<usize> {
        let start = self.lead + pair * self.stride + self.offset;
        start..start + self.bytes
    }

    fn source(&self, pair: usize) -> std::ops::Range<usize> {
        pair * self.stride..pair * self.stride + self.bytes
    }

    /// Whether the pair's sink holds what its source does, and nothing beside it was written.
    fn look(&self, pair: usize) -> Result<(), String> {
        let name = self.kernel.kernel().name;
        let (from, to) = (self.source(pair), self.sink(pair));
        if self.sinks[to.clone()] != self.sources[from] {
            return Err(format!("kernel {name}: the sink does not hold what the source holds"));
        }
        let before = self.lead + pair * self.stride..to.start;
        let after = to.end..self.lead + (pair + 1) * self.stride;
        if self.sinks[before].iter().chain(&self.sinks[after]).any(|byte| *byte != SPOILT) {
            return Err(format!("kernel {name}: bytes beside the sink were written"));
        }
        Ok(())
    }

    /// One copy; answers something of what was written.
    #[inline]
    fn once(&mut self) -> u64 {
        let (from, to) = (self.source(self.at), self.sink(self.at));
        self.at = if self.at + 1 == self.pairs { 0 } else { self.at + 1 };
        let sink = &mut self.sinks[to];
        self.kernel.copy(sink, &self.sources[from]);
        if self.checksum { u64::from(crc32c(sink, 0)) } else { u64::from(sink[0]) }
    }
}

impl Copies for Stretch {
    fn allocate(&mut self) -> Result<(), String> {
        let len = self.pairs * self.stride;
        room_for(2 * len)?;
        self.sources = pattern(len);
        self.sinks = vec![1; len + LINE];
        self.lead = self.sinks.as_ptr().align_offset(LINE).min(LINE);
        Ok(())
    }

    fn copy(&mut self, times: u32) -> u64 {
        (0..times).fold(0, |sum, _| sum.wrapping_add(self.once()))
    }

    fn verify(&mut self) -> Result<(), String> {
        self.sinks.fill(SPOILT);
        self.at = 0;
        (0..self.pairs.min(MOST_VERIFIED)).try_for_each(|pair| {
            self.once();
            self.look(pair)
        })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_in_the_sink_or_beside_it_is_found() {
        let kernel =
            thalweg_kernels::by_name("libc").and_then(thalweg_kernels::Kernel::ready).unwrap();
        let mut stretch = Stretch::new(kernel, 100, 4096, 5);
        stretch.allocate().unwrap();
        stretch.verify().unwrap();
        let sink = stretch.sink(1);
        for (at, what) in
            [(sink.start + 50, "does not hold"), (sink.start - 1, "beside"), (sink.end, "beside")]
        {
            stretch.sinks[at] ^= 1;
            assert!(stretch.look(1).unwrap_err().contains(what));
            stretch.sinks[at] ^= 1;
            stretch.look(1).unwrap();
        }
    }
}
