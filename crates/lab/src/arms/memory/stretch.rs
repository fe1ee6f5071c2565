//! Copies of one size: consecutive pairs of sources and sinks over a region of memory.

use super::{
    RepeatedCopy, SinkPosition,
    buffers::{Buffers, HasBuffers, SPOILT, kept_to},
    operation::Operation,
};
use thalweg_measure::scratch::room_for;

/// The longest cache line of any CPU; adjacent-line prefetchers also fetch this many bytes.
const LINE: usize = 128;
/// The CPU first compares a load with earlier stores only by the address bits below this size.
const PAGE: usize = 4096;
/// Maximum number of sinks that are verified byte by byte. All copies are alike, so a few are enough.
const MOST_VERIFIED: usize = 64;
/// Total size of fresh sinks in bytes. When all sinks have been used, their pages are returned to the kernel.
/// That is expensive, and is not timed.
const FRESH: usize = 32 << 20;

/// Consecutive sources and sinks.
pub struct CopyStretch {
    operation: Operation,
    bytes: usize,
    kind: SinkPosition,
    /// Distance from one sink to the next.
    stride: usize,
    pairs: usize,
    /// Distance from the start of the sinks to the first one.
    lead: usize,
    buffers: Buffers,
    at: usize,
}

impl CopyStretch {
    /// Creates pairs of `bytes` over `working_set` bytes in total, at least one, without allocating the memory.
    /// `offset` moves the sink from its normal position.
    pub fn new(
        operation: Operation,
        bytes: usize,
        working_set: usize,
        kind: SinkPosition,
        offset: usize,
    ) -> Self {
        let (stride, working_set) = match kind {
            SinkPosition::Fresh => (bytes.next_multiple_of(PAGE), 2 * FRESH),
            SinkPosition::PageEdge => (bytes, 0),
            SinkPosition::Line | SinkPosition::Alias => {
                ((bytes + offset).next_multiple_of(LINE), working_set)
            }
        };
        let lead = match kind {
            // Half a page away from `Alias`, so that no load seems to depend on a recent store.
            SinkPosition::Line => PAGE / 2 + offset,
            SinkPosition::Alias => offset,
            SinkPosition::Fresh | SinkPosition::PageEdge => 0,
        };
        let pairs = (working_set / 2 / stride).max(1);
        Self { operation, bytes, kind, stride, pairs, lead, buffers: Buffers::default(), at: 0 }
    }

    /// Returns the start of a pair's source. Fresh sinks share one source, which stays cached.
    fn source(&self, pair: usize) -> usize {
        if self.kind == SinkPosition::Fresh { 0 } else { pair * self.stride }
    }

    /// Performs the operation on the next pair. Returns the pair and the result of the operation.
    #[inline]
    fn turn(&mut self, sources: &mut [u8], sinks: &mut [u8]) -> (usize, u64) {
        let pair = self.at;
        self.at = if pair + 1 == self.pairs { 0 } else { pair + 1 };
        let (from, to) = (self.source(pair), self.lead + pair * self.stride);
        let answer = self
            .operation
            .once(&mut sinks[to..to + self.bytes], &mut sources[from..from + self.bytes]);
        (pair, answer)
    }

    /// Checks that the pair's sink has the right content, and that nothing next to it was written.
    fn look(&self, pair: usize, answer: u64, sources: &[u8], sinks: &[u8]) -> Result<(), String> {
        let (from, to) = (self.source(pair), self.lead + pair * self.stride);
        let end = to + self.bytes;
        self.operation.look(&sinks[to..end], &sources[from..from + self.bytes], answer)?;
        let before = if pair == 0 { 0 } else { to - (self.stride - self.bytes) };
        let after = if pair + 1 == self.pairs { sinks.len() } else { to + self.stride };
        kept_to(self.operation.name(), sinks, &(before..after), &(to..end))
    }
}

impl HasBuffers for CopyStretch {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }
}

impl RepeatedCopy for CopyStretch {
    fn allocate(&mut self) -> Result<(), String> {
        let sources = self.source(self.pairs - 1) + self.bytes;
        let sinks = self.lead + self.pairs * self.stride;
        room_for(sources.saturating_add(sinks))?;
        self.buffers = Buffers::made(self.kind, sources, sinks)?;
        Ok(())
    }

    fn copy(&mut self, times: u32) -> u64 {
        let all = |own: &mut Self, sources: &mut [u8], sinks: &mut [u8]| {
            (0..times).fold(0_u64, |sum, _| sum.wrapping_add(own.turn(sources, sinks).1))
        };
        self.with_memory(all).unwrap_or_default()
    }

    fn at_a_stretch(&self) -> u32 {
        match self.kind {
            SinkPosition::Fresh => u32::try_from(self.pairs).unwrap_or(u32::MAX),
            _ => u32::MAX,
        }
    }

    fn renew(&mut self) -> Result<(), String> {
        if self.kind != SinkPosition::Fresh {
            return Ok(());
        }
        self.at = 0;
        self.buffers.forget_sinks()
    }

    fn verify(&mut self) -> Result<(), String> {
        self.at = 0;
        let all = |own: &mut Self, sources: &mut [u8], sinks: &mut [u8]| {
            sinks.fill(SPOILT);
            (0..own.pairs.min(MOST_VERIFIED)).try_for_each(|_| {
                let (pair, answer) = own.turn(sources, sinks);
                own.look(pair, answer, sources, sinks)
            })
        };
        self.verified(all)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_fresh(&self) -> bool {
        self.kind == SinkPosition::Fresh
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation::CopyUsage, *};

    #[test]
    fn a_wrong_byte_in_the_sink_or_beside_it_is_found() {
        let operation = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        let mut stretch = CopyStretch::new(operation, 100, 4096, SinkPosition::Line, 5);
        stretch.allocate().unwrap();
        stretch.verify().unwrap();
        let start = stretch.lead + stretch.stride;
        for (at, what) in
            [(start + 50, "wrong bytes"), (start - 1, "outside"), (start + 100, "outside")]
        {
            let looked = |own: &mut CopyStretch, sources: &mut [u8], sinks: &mut [u8]| {
                sinks[at] ^= 1;
                let wrong = own.look(1, 0, sources, sinks);
                sinks[at] ^= 1;
                own.look(1, 0, sources, sinks).unwrap();
                wrong
            };
            assert!(stretch.with_memory(looked).unwrap().unwrap_err().contains(what));
        }
    }

    #[test]
    fn sinks_lie_where_their_kind_says() {
        let operation = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        for (kind, offset, apart) in [
            (SinkPosition::Line, 0, 2048),
            (SinkPosition::Line, 1, 2049),
            (SinkPosition::Alias, 1, 1),
            (SinkPosition::Fresh, 0, 0),
        ] {
            let mut stretch = CopyStretch::new(operation, 300, 8192, kind, offset);
            stretch.allocate().unwrap();
            let place = |own: &mut CopyStretch, sources: &mut [u8], sinks: &mut [u8]| {
                (sinks.as_ptr().addr() + own.lead).wrapping_sub(sources.as_ptr().addr()) % PAGE
            };
            assert_eq!(stretch.with_memory(place), Some(apart), "{kind:?}");
        }
        let mut edge = CopyStretch::new(operation, 300, 0, SinkPosition::PageEdge, 0);
        edge.allocate().unwrap();
        let ends = |_: &mut CopyStretch, sources: &mut [u8], sinks: &mut [u8]| {
            [sources, sinks].map(|bytes| bytes.as_ptr_range().end.addr() % PAGE)
        };
        assert_eq!(edge.with_memory(ends), Some([0, 0]));
    }

    #[test]
    fn fresh_sinks_are_used_once_between_two_renewals() {
        let operation = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        let mut fresh = CopyStretch::new(operation, 16 << 20, 0, SinkPosition::Fresh, 0);
        fresh.allocate().unwrap();
        assert_eq!((fresh.at_a_stretch(), fresh.is_fresh()), (2, true));
        fresh.renew().unwrap();
        let untouched = |_: &mut CopyStretch, _: &mut [u8], sinks: &mut [u8]| sinks[0] == 0;
        assert_eq!(fresh.with_memory(untouched), Some(true));
        fresh.verify().unwrap();
    }
}
