//! A kernel on two hot buffers, in many places and lengths of which no branch predictor knows the
//! next: how tuning compares kernels.

use std::{cell::RefCell, hint::black_box};
use thalweg_core::{Unfit, profile::SHORT};
use thalweg_kernels::{Ready, ReadyFill};
use thalweg_sys::host::caches;

use crate::{
    arms::content::Content,
    measure::{
        sample::{Meter, Sample},
        schedule::{Arm, Failure},
        stats::Random,
    },
};

/// Two buffers of the largest size so far and a page more, in which each copy has drawn places: how
/// two buffers lie to each other can make one kernel slow and not another, and must not be the luck
/// of a session.
///
/// At the short sizes every copy of a sample has a drawn length, from a byte up to the size, evenly in
/// logarithms, which no branch predictor knows: so each judges its kernel as the only one for everything
/// below it, which is how programs mix short copies. At others half of them have, and the rest exactly
/// the size, as in a loop that moves a buffer. Where only the size itself is asked for, all have it. Every second
/// sink lies otherwise than its source to the vectors, but where one size is repeated: there all begin at lines.
/// Fills are done alike.
///
/// Cold ones are many pairs of buffers one behind the other, so many that no cache holds them: half of the copies
/// have the size, and half a drawn length.
#[derive(Default)]
pub(crate) struct DrawnBuffers {
    source: Vec<u8>,
    sink: Vec<u8>,
    size: usize,
    /// Every copy, or fill, has exactly the size.
    exact: bool,
    /// Each begins at a cache line in either buffer.
    lined: bool,
    drawn: Vec<Drawn>,
    /// The bytes that cold copies go over in either buffer; 0 if they are hot.
    region: usize,
    /// Where the next one begins.
    next: usize,
}

/// A copy: where it begins in either buffer, and a length up to the size.
#[derive(Clone, Copy)]
struct Drawn {
    from: usize,
    to: usize,
    len: usize,
}

/// A kernel that copies from one buffer to the other, or fills the other.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    Copy(Ready),
    Fill(ReadyFill),
}

/// More drawn sizes than a branch predictor can learn by heart.
const DRAWN: usize = 1 << 14;
/// Copies begin within a page, as far apart as malloc aligns.
const PLACES: usize = 4096;
const ALIGNED: usize = 16;
const LINE: usize = 64;
/// So many copies of one size are made where one is, or finding the next place would hide what a short one takes.
const AT_A_PLACE: u64 = 16;
const FILLED: u8 = 0x5a;
/// Where no cache shows its size.
const LEAST_REGION: usize = 64 << 20;
/// Between two cold copies, so that no copy begins in a line that was prefetched for the one before.
const GAP: usize = 256;

impl DrawnBuffers {
    /// With drawn sizes, or all exact.
    pub fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// One size again and again, as buffers and slots lie that are used again and again: at lines.
    pub fn repeated() -> Self {
        Self { exact: true, lined: true, ..Self::default() }
    }

    /// The same between places that no cache holds.
    pub fn cold(exact: bool) -> Self {
        let largest = caches().iter().map(|cache| cache.bytes).max().unwrap_or(0);
        let region = usize::try_from(largest).unwrap_or(0).max(LEAST_REGION);
        Self { exact, region, ..Self::default() }
    }

    pub fn resize(&mut self, size: usize) {
        let room = size + PLACES + self.region + LINE;
        if self.source.len() < room {
            self.source = vec![0; room];
            Content::Pattern.fill(0, &mut self.source);
            self.sink = vec![1; room];
        }
        self.size = size;
        let apart = if self.lined { LINE } else { ALIGNED };
        let first = |buffer: &[u8]| if self.lined { buffer.as_ptr().align_offset(LINE) } else { 0 };
        let (source, sink) = (first(&self.source), first(&self.sink));
        // The same for every kernel and every session.
        let mut random = Random::new(size as u64);
        let mut uneven = false;
        let draw = || {
            let mut place = || (random.unit() * (PLACES / apart) as f64) as usize * apart;
            let (from, to) = (source + place(), sink + place());
            uneven = !uneven && !self.lined;
            let to = if uneven { to + 1 + from / ALIGNED % (ALIGNED - 1) } else { to };
            let len = ((size as f64).powf(random.unit()).ceil() as usize).min(size);
            Drawn { from, to, len }
        };
        self.drawn = std::iter::repeat_with(draw).take(DRAWN).collect();
    }

    fn check(&mut self, kernel: Kernel) -> Result<(), &'static str> {
        let (source, sink) = (&self.source[..self.size], &mut self.sink[..self.size]);
        sink.fill(!FILLED);
        match kernel {
            Kernel::Copy(kernel) => {
                kernel.copy(sink, source);
                if sink == source { Ok(()) } else { Err("copied other bytes") }
            }
            Kernel::Fill(kernel) => {
                kernel.fill(sink, FILLED);
                let right = sink.iter().all(|byte| *byte == FILLED);
                if right { Ok(()) } else { Err("filled with another byte") }
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
        let meter = Meter::start();
        let mut places = self.drawn.iter().cycle();
        let mut left = exact;
        while let (1.., Some(Drawn { from, to, .. })) = (left, places.next()) {
            let (source, sink) =
                (&source[*from..*from + self.size], &mut sink[*to..*to + self.size]);
            let here = left.min(AT_A_PLACE);
            for _ in 0..here {
                run(black_box(&mut *sink), black_box(source));
            }
            left -= here;
        }
        for Drawn { from, to, len } in self.drawn.iter().cycle().take(drawn as usize) {
            let (from, to) = (*from..*from + len, *to..*to + len);
            run(black_box(&mut sink[to]), black_box(&source[from]));
            bytes += *len as u64;
        }
        meter.stop(bytes)
    }
}

impl DrawnBuffers {
    fn sample_cold(&mut self, times: u64, run: impl Fn(&mut [u8], &[u8])) -> Sample {
        let (source, sink) = (&self.source[..], &mut self.sink[..]);
        let stride = self.size.next_multiple_of(GAP) + GAP;
        let (mut at, mut bytes) = (self.next, 0);
        let meter = Meter::start();
        let drawn = self.drawn.iter().cycle().zip(0..times);
        for (Drawn { from, to, len }, n) in drawn {
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

/// A kernel on the buffers of a session, which its arms share.
pub(crate) struct OnBuffers<'b> {
    pub buffers: &'b RefCell<DrawnBuffers>,
    pub kernel: Kernel,
}

impl Arm for OnBuffers<'_> {
    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        let (mut buffers, times) = (self.buffers.borrow_mut(), u64::from(repeats));
        Ok(match self.kernel {
            Kernel::Copy(kernel) => buffers.sample(times, |sink, source| kernel.copy(sink, source)),
            Kernel::Fill(kernel) => buffers.sample(times, |sink, _| kernel.fill(sink, FILLED)),
        })
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.buffers.borrow_mut().check(self.kernel).map_err(Unfit::because)
    }
}
