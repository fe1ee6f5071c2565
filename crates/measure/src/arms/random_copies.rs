//! Runs a kernel on two buffers, with random positions and lengths that no branch predictor can learn. Tuning compares
//! kernels with it.

use std::{cell::RefCell, hint::black_box};
use thalweg_core::{Unfit, profile::SHORT};
use thalweg_kernels::{Ready, ReadyFill};
use thalweg_sys::host::caches;

use crate::{
    arms::content::ByteContent,
    sample::{Sample, SampleMeter},
    schedule::{Arm, SampleFailure},
    stats::Random,
};

/// Two buffers, with a random position for each copy. The distance between source and sink can slow down one kernel and
/// not another. With one fixed position per session, chance would decide the comparison.
///
/// At short sizes every copy of a sample has a random length from one byte up to the size, uniform on a logarithmic
/// scale. Each result therefore rates a kernel for programs that mix all lengths up to the size. At longer sizes half
/// of the copies have random lengths. The other half has exactly the size, as in a loop that moves a buffer. If `exact`
/// is set, all copies have the size. In every second copy, source and sink have different alignments relative to a
/// vector. If `lined` is set, all copies begin at cache lines instead. All of this also applies to fills.
///
/// Cold copies cycle through regions of both buffers that no cache can hold. Half of them have a random length, unless
/// `exact` is set.
#[derive(Default)]
pub struct CopyBuffers {
    source: Vec<u8>,
    sink: Vec<u8>,
    size: usize,
    /// `true` if every copy or fill has exactly the size.
    exact: bool,
    /// `true` if each copy begins at a cache line in both buffers.
    lined: bool,
    drawn: Vec<RandomCopy>,
    /// Size of the part of each buffer that cold copies cycle through; 0 for hot copies.
    region: usize,
    /// The position of the next cold copy.
    next: usize,
}

/// A copy: its position in both buffers, and a length up to the size.
#[derive(Clone, Copy)]
struct RandomCopy {
    from: usize,
    to: usize,
    len: usize,
}

/// A kernel that copies from one buffer to the other, or fills the other.
#[derive(Clone, Copy)]
pub enum TimedKernel {
    Copy(Ready),
    Fill(ReadyFill),
}

/// Number of random sizes: more than a branch predictor can learn.
const DRAWN: usize = 1 << 14;
/// Copies begin at a random offset below this number of bytes (one page), at malloc's alignment.
const PLACES: usize = 4096;
const ALIGNED: usize = 16;
const LINE: usize = 64;
/// Number of consecutive copies of the full size at one position. Loading a new position for every copy would hide the
/// cost of a short copy.
const AT_A_PLACE: u64 = 16;
const FILLED: u8 = 0x5a;
/// Minimum region of cold copies. The region is larger if the machine has a larger cache.
const LEAST_REGION: usize = 64 << 20;
/// Distance between two cold copies, so that no copy begins in a line that was prefetched for the previous one.
const GAP: usize = 256;

impl CopyBuffers {
    /// Creates buffers for random lengths, or for exact ones.
    pub fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// Creates buffers for repeated copies of one size at cache-line boundaries, as in programs that reuse buffers.
    pub fn repeated() -> Self {
        Self { exact: true, lined: true, ..Self::default() }
    }

    /// Creates buffers for copies between positions that are not cached.
    pub fn cold(exact: bool) -> Self {
        let largest = caches().iter().map(|cache| cache.bytes).max().unwrap_or(0);
        let region = usize::try_from(largest).unwrap_or(0).max(LEAST_REGION);
        Self { exact, region, ..Self::default() }
    }

    pub fn resize(&mut self, size: usize) {
        let room = size + PLACES + self.region + LINE;
        if self.source.len() < room {
            self.source = vec![0; room];
            ByteContent::Pattern.fill(0, &mut self.source);
            self.sink = vec![1; room];
        }
        self.size = size;
        let apart = if self.lined { LINE } else { ALIGNED };
        let first = |buffer: &[u8]| if self.lined { buffer.as_ptr().align_offset(LINE) } else { 0 };
        let (source, sink) = (first(&self.source), first(&self.sink));
        // The size alone determines the seed, so positions and lengths are equal for every kernel and every session.
        let mut random = Random::new(size as u64);
        let mut uneven = false;
        let draw = || {
            let mut place = || (random.unit() * (PLACES / apart) as f64) as usize * apart;
            let (from, to) = (source + place(), sink + place());
            uneven = !uneven && !self.lined;
            let to = if uneven { to + 1 + from / ALIGNED % (ALIGNED - 1) } else { to };
            let len = ((size as f64).powf(random.unit()).ceil() as usize).min(size);
            RandomCopy { from, to, len }
        };
        self.drawn = std::iter::repeat_with(draw).take(DRAWN).collect();
    }

    fn check(&mut self, kernel: TimedKernel) -> Result<(), &'static str> {
        let (source, sink) = (&self.source[..self.size], &mut self.sink[..self.size]);
        sink.fill(!FILLED);
        match kernel {
            TimedKernel::Copy(kernel) => {
                kernel.copy(sink, source);
                if sink == source { Ok(()) } else { Err("copied wrong bytes") }
            }
            TimedKernel::Fill(kernel) => {
                kernel.fill(sink, FILLED);
                let right = sink.iter().all(|byte| *byte == FILLED);
                if right { Ok(()) } else { Err("filled with a wrong byte") }
            }
        }
    }

    fn sample(&mut self, times: u64, run: impl Fn(&mut [u8], &[u8])) -> Sample {
        if self.region > 0 {
            return self.sample_cold(times, run);
        }
        let (source, sink) = (&self.source[..], &mut self.sink[..]);
        let exact = match (self.exact, self.size as u64 <= SHORT) {
            (true, _) => times,
            (false, true) => 0,
            (false, false) => times.div_ceil(2),
        };
        let drawn = times - exact;
        let mut bytes = self.size as u64 * exact;
        let meter = SampleMeter::start();
        let mut places = self.drawn.iter().cycle();
        let mut left = exact;
        while let (1.., Some(RandomCopy { from, to, .. })) = (left, places.next()) {
            let (source, sink) =
                (&source[*from..*from + self.size], &mut sink[*to..*to + self.size]);
            let here = left.min(AT_A_PLACE);
            for _ in 0..here {
                run(black_box(&mut *sink), black_box(source));
            }
            left -= here;
        }
        for RandomCopy { from, to, len } in self.drawn.iter().cycle().take(drawn as usize) {
            let (from, to) = (*from..*from + len, *to..*to + len);
            run(black_box(&mut sink[to]), black_box(&source[from]));
            bytes += *len as u64;
        }
        meter.stop(bytes)
    }
}

impl CopyBuffers {
    fn sample_cold(&mut self, times: u64, run: impl Fn(&mut [u8], &[u8])) -> Sample {
        let (source, sink) = (&self.source[..], &mut self.sink[..]);
        let stride = self.size.next_multiple_of(GAP) + GAP;
        let (mut at, mut bytes) = (self.next, 0);
        let meter = SampleMeter::start();
        let drawn = self.drawn.iter().cycle().zip(0..times);
        for (RandomCopy { from, to, len }, n) in drawn {
            let len = if self.exact || n % 2 == 0 { self.size } else { *len };
            let (from, to) = (at + from % GAP, at + to % GAP);
            run(black_box(&mut sink[to..to + len]), black_box(&source[from..from + len]));
            bytes += len as u64;
            at = if at + stride < self.region { at + stride } else { 0 };
        }
        let sample = meter.stop(bytes);
        self.next = at;
        sample
    }
}

/// A kernel on buffers that all arms (compared variants) of a session share.
pub struct OnBuffers<'b> {
    pub buffers: &'b RefCell<CopyBuffers>,
    pub kernel: TimedKernel,
}

impl Arm for OnBuffers<'_> {
    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        let (mut buffers, times) = (self.buffers.borrow_mut(), u64::from(repeats));
        Ok(match self.kernel {
            TimedKernel::Copy(kernel) => {
                buffers.sample(times, |sink, source| kernel.copy(sink, source))
            }
            TimedKernel::Fill(kernel) => buffers.sample(times, |sink, _| kernel.fill(sink, FILLED)),
        })
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.buffers.borrow_mut().check(self.kernel).map_err(Unfit::because)
    }
}
