//! Copies with random sizes from a distribution, in batches with an exact total size.
//!
//! Sizes and positions are generated from one seed before anything is timed, so every arm (a compared variant) does the
//! same copies in the same order.

use serde::Deserialize;
use std::ops::Range;

use super::{
    RepeatedCopy, SinkPosition,
    buffers::{Buffers, HasBuffers, SPOILT, kept_to},
    fleet::Distribution,
    operation::Operation,
};
use thalweg_measure::scratch::room_for;
use thalweg_measure::stats::Random;

/// How the sizes of successive copies are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrawOrder {
    /// Each size is drawn independently, so that no predictor can know the next one.
    #[default]
    Iid,
    /// A few sizes that are drawn once and repeated.
    Predictable,
}

/// The parameters for generating the copies of a batch.
#[derive(Clone, Debug)]
pub struct Draw {
    pub sizes: Distribution,
    pub order: DrawOrder,
    /// The position of sources and sinks: random with an alignment of the distribution, or at the end of a page.
    pub kind: SinkPosition,
    /// `true` if sources and sinks are in ascending order, so that no copy uses a cache line that was used recently.
    pub fresh_lines: bool,
}

/// Minimum number of drawn sizes. No branch predictor can learn that many.
const LEAST_DRAWS: usize = 1 << 14;
const MOST_DRAWS: usize = 1 << 20;
const MOST_BATCH: usize = 64 << 20;
/// Number of sizes in a predictable order.
const FEW: usize = 8;
const SEED: u64 = 1;
const MOST_VERIFIED: usize = 256;
/// Bytes on both sides of a sink that are verified.
const BESIDE: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct MixedCopy {
    from: u32,
    to: u32,
    len: u32,
}

/// Copies that are generated in advance.
pub struct SizeMix {
    operation: Operation,
    batch: usize,
    /// Size of the buffer for sources, in bytes. The buffer for sinks has the same size.
    half: usize,
    kind: SinkPosition,
    copies: Vec<MixedCopy>,
    /// The index in `copies` at which each batch begins, and the end of the last one.
    starts: Vec<usize>,
    at: usize,
    buffers: Buffers,
}

impl Clone for SizeMix {
    /// Clones the copies; the memory of the clone is not allocated yet.
    fn clone(&self) -> Self {
        let (copies, starts) = (self.copies.clone(), self.starts.clone());
        let Self { operation, batch, half, kind, at, .. } = *self;
        Self { operation, batch, half, kind, copies, starts, at, buffers: Buffers::default() }
    }
}

impl SizeMix {
    /// Generates batches of `batch` bytes over `working_set` bytes in total, without allocating the memory.
    pub fn new(
        operation: Operation,
        batch: usize,
        working_set: usize,
        draw: Draw,
    ) -> Result<Self, String> {
        let half = working_set / 2;
        if u32::try_from(half).is_err() || batch > MOST_BATCH {
            return Err(
                "drawn sizes require a batch of at most 64 MiB and a residency below 4 GiB"
                    .to_owned(),
            );
        }
        let Draw { sizes, order, kind, fresh_lines } = draw;
        let sizes = sizes.upto(half);
        let mut random = Random::new(SEED);
        let mut next = || sizes.size(&mut random);
        let few: Option<Vec<usize>> = (0..FEW).map(|_| next()).collect();
        let few = few.filter(|few| order == DrawOrder::Iid || few.iter().any(|size| *size > 0));
        let few = few.ok_or_else(|| {
            format!("no size of the distribution fits into {half} bytes of sources")
        })?;
        let mut places =
            MixPositions { half, kind, fresh_lines, next: [0; 2], random: Random::new(SEED + 1) };
        let (mut copies, mut starts) = (Vec::new(), vec![0]);
        let mut sum = 0;
        let enough = |copies: usize, sum: usize| {
            copies >= MOST_DRAWS || (copies >= LEAST_DRAWS && (!fresh_lines || sum >= half))
        };
        while !enough(copies.len(), sum) {
            let mut left = batch;
            while left > 0 {
                let size = match order {
                    DrawOrder::Iid => next().unwrap_or(left),
                    DrawOrder::Predictable => few[copies.len() % FEW],
                };
                // The last copy of a batch is truncated, so that all batches have the same size.
                let size = size.min(left);
                let [from, to] = places.of(size, &sizes);
                copies.push(MixedCopy { from: from as u32, to: to as u32, len: size as u32 });
                left -= size;
            }
            sum += batch;
            starts.push(copies.len());
        }
        Ok(Self {
            operation,
            batch,
            half,
            kind,
            copies,
            starts,
            at: 0,
            buffers: Buffers::default(),
        })
    }

    fn next_batch(&mut self) -> Range<usize> {
        let batch = self.at;
        self.at = if batch + 2 == self.starts.len() { 0 } else { batch + 1 };
        self.starts[batch]..self.starts[batch + 1]
    }

    fn look(
        &self,
        one: MixedCopy,
        sources: &[u8],
        sinks: &[u8],
        answer: u64,
    ) -> Result<(), String> {
        let (from, to, len) = (one.from as usize, one.to as usize, one.len as usize);
        self.operation.look(&sinks[to..to + len], &sources[from..from + len], answer)?;
        kept_to(self.operation.name(), sinks, &around(one, sinks.len()), &(to..to + len))
    }
}

impl HasBuffers for SizeMix {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }
}

fn around(one: MixedCopy, len: usize) -> Range<usize> {
    let (to, end) = (one.to as usize, one.to as usize + one.len as usize);
    to.saturating_sub(BESIDE)..(end + BESIDE).min(len)
}

#[inline]
fn once(operation: &mut Operation, one: MixedCopy, sources: &mut [u8], sinks: &mut [u8]) -> u64 {
    let (from, to, len) = (one.from as usize, one.to as usize, one.len as usize);
    operation.once(&mut sinks[to..to + len], &mut sources[from..from + len])
}

/// Generates the positions of sources and sinks.
struct MixPositions {
    half: usize,
    kind: SinkPosition,
    fresh_lines: bool,
    next: [usize; 2],
    random: Random,
}

impl MixPositions {
    fn of(&mut self, len: usize, sizes: &Distribution) -> [usize; 2] {
        let last = self.half - len;
        if self.kind == SinkPosition::PageEdge {
            return [last; 2];
        }
        [0, 1].map(|end| {
            let alignment = sizes.alignment(&mut self.random);
            let at = if self.fresh_lines {
                let at = self.next[end].next_multiple_of(alignment);
                let at = if at > last { 0 } else { at };
                self.next[end] = at + len;
                at
            } else {
                self.random.below(last + 1)
            };
            at - at % alignment
        })
    }
}

impl RepeatedCopy for SizeMix {
    fn allocate(&mut self) -> Result<(), String> {
        room_for(2 * self.half + self.copies.len() * size_of::<MixedCopy>())?;
        self.buffers = Buffers::made(self.kind, self.half, self.half)?;
        Ok(())
    }

    fn copy(&mut self, times: u32) -> u64 {
        let all = |own: &mut Self, sources: &mut [u8], sinks: &mut [u8]| {
            let mut sum = 0_u64;
            for _ in 0..times {
                let batch = own.next_batch();
                for one in &own.copies[batch] {
                    sum = sum.wrapping_add(once(&mut own.operation, *one, sources, sinks));
                }
            }
            sum
        };
        self.with_memory(all).unwrap_or_default()
    }

    fn verify(&mut self) -> Result<(), String> {
        let all = |own: &mut Self, sources: &mut [u8], sinks: &mut [u8]| {
            for n in 0..own.copies.len().min(MOST_VERIFIED) {
                let one = own.copies[n];
                let around = around(one, sinks.len());
                sinks[around].fill(SPOILT);
                let answer = once(&mut own.operation, one, sources, sinks);
                own.look(one, sources, sinks, answer)?;
            }
            Ok(())
        };
        self.verified(all)
    }

    fn bytes(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation::CopyUsage, *};

    fn mix(order: DrawOrder, kind: SinkPosition, fresh_lines: bool) -> SizeMix {
        let operation = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        let sizes = Distribution::named("memcpy-fleet").unwrap();
        SizeMix::new(operation, 10_000, 64 << 10, Draw { sizes, order, kind, fresh_lines }).unwrap()
    }

    #[test]
    fn every_batch_is_as_large_and_every_copy_inside() {
        for (order, kind, fresh) in [
            (DrawOrder::Iid, SinkPosition::Line, false),
            (DrawOrder::Predictable, SinkPosition::Line, false),
            (DrawOrder::Iid, SinkPosition::PageEdge, false),
            (DrawOrder::Iid, SinkPosition::Line, true),
        ] {
            let mut made = mix(order, kind, fresh);
            assert!(made.copies.len() >= LEAST_DRAWS);
            for batch in made.starts.windows(2) {
                let sum: u32 = made.copies[batch[0]..batch[1]].iter().map(|one| one.len).sum();
                assert_eq!(sum, 10_000);
            }
            for one in &made.copies {
                assert!((one.from.max(one.to) + one.len) as usize <= made.half, "{one:?}");
                if kind == SinkPosition::PageEdge {
                    assert_eq!((one.to + one.len) as usize, made.half);
                }
            }
            made.allocate().unwrap();
            made.verify().unwrap();
            made.copy(3);
        }
    }

    #[test]
    fn the_predictable_order_has_few_sizes_and_both_are_the_same_for_every_arm() {
        let sizes = |made: &SizeMix| made.copies.iter().map(|one| one.len).collect::<Vec<_>>();
        let made = sizes(&mix(DrawOrder::Predictable, SinkPosition::Line, false));
        assert_eq!(made[..FEW], made[FEW..2 * FEW]);
        let iid = || sizes(&mix(DrawOrder::Iid, SinkPosition::Line, false));
        assert!(iid() == iid() && iid()[..FEW] != iid()[FEW..2 * FEW]);
    }

    #[test]
    fn a_wrong_byte_in_a_sink_or_beside_it_is_found() {
        let mut made = mix(DrawOrder::Iid, SinkPosition::Line, false);
        made.allocate().unwrap();
        let one = *made.copies.iter().find(|one| one.len > 8 && one.to > 64).unwrap();
        let (to, end) = (one.to as usize, (one.to + one.len) as usize);
        for (at, what) in [(to + 3, "wrong bytes"), (to - 1, "outside"), (end, "outside")] {
            let looked = |own: &mut SizeMix, sources: &mut [u8], sinks: &mut [u8]| {
                sinks.fill(SPOILT);
                let answer = once(&mut own.operation, one, sources, sinks);
                own.look(one, sources, sinks, answer).unwrap();
                sinks[at] ^= 1;
                own.look(one, sources, sinks, answer)
            };
            assert!(made.with_memory(looked).unwrap().unwrap_err().contains(what));
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let operation = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        let draw = || Draw {
            sizes: Distribution::named("memset-4").unwrap(),
            order: DrawOrder::Iid,
            kind: SinkPosition::Line,
            fresh_lines: false,
        };
        assert!(SizeMix::new(operation, 100, 0, draw()).is_err());
        assert!(SizeMix::new(operation, usize::MAX, 1 << 20, draw()).is_err());
    }
}
