//! The arms of a survey: a mechanism between real ends, or a copy kernel between two buffers.

use std::{cell::RefCell, hint::black_box, time::Duration};
use thalweg_core::{Mechanism, Tuning, Unfit};
use thalweg_kernels::Ready;

use super::{bench::Bench, job::Way, pattern::Pattern};
use crate::{
    rounds::{Arm, Failure},
    sample::{Meter, Sample},
    stats::Random,
};

/// Where all arms of a session do their work, one after the other.
pub(super) enum Place<'s> {
    Ends(Box<RefCell<Bench<'s>>>),
    Memory(RefCell<Buffers>),
}

/// Two buffers of the largest size so far and a page more, in which each copy has drawn places: how
/// two buffers lie to each other can make one kernel slow and not another, and must not be the luck
/// of a session.
///
/// Half of a sample's copies have exactly the size, as in a loop that always copies as much; half have
/// drawn ones up to it, which no branch predictor knows. A kernel is worth its band only if the sum
/// is less.
#[derive(Default)]
pub(super) struct Buffers {
    source: Vec<u8>,
    sink: Vec<u8>,
    size: usize,
    transfers: u64,
    /// Every copy has exactly the size.
    exact: bool,
    drawn: Vec<Drawn>,
}

/// A copy: where it begins in either buffer, and a length up to the size.
#[derive(Clone, Copy)]
struct Drawn {
    from: usize,
    to: usize,
    len: usize,
}

/// What does the work of a way.
#[derive(Clone, Copy)]
pub(super) enum Means {
    Mechanism(&'static dyn Mechanism),
    Kernel(Ready),
}

/// A way at work.
pub(super) struct SurveyArm<'p, 's> {
    pub way: Way,
    means: Means,
    name: String,
    place: &'p Place<'s>,
}

impl Place<'_> {
    /// From now on so many bytes are moved at a time.
    pub fn resize(&self, size: u64) -> std::io::Result<()> {
        match self {
            Self::Ends(bench) => bench.borrow_mut().resize(size),
            Self::Memory(buffers) => {
                let len = usize::try_from(size).map_err(|_| std::io::ErrorKind::InvalidInput)?;
                buffers.borrow_mut().resize(len);
                Ok(())
            }
        }
    }

    /// From now on a sample holds so many transfers, as far as there is room for them.
    pub fn repeat(&self, transfers: u64) -> u64 {
        match self {
            Self::Ends(bench) => {
                let mut bench = bench.borrow_mut();
                let fitting = bench.room_for() / bench.size.max(1);
                bench.transfers = transfers.min(fitting).clamp(1, MOST_TRANSFERS);
                bench.transfers
            }
            Self::Memory(buffers) => {
                let mut buffers = buffers.borrow_mut();
                buffers.transfers = transfers.clamp(1, MOST_CALLS);
                buffers.transfers
            }
        }
    }

    /// Whether so many bytes may be taken here.
    pub fn has_room(&self, size: u64) -> bool {
        match self {
            Self::Ends(bench) => size.saturating_mul(2) <= bench.borrow().room_for(),
            Self::Memory(_) => true,
        }
    }
}

// Files of one sample: more would measure the folder.
const MOST_TRANSFERS: u64 = 256;
const MOST_CALLS: u64 = 1 << 24;
/// More drawn sizes than a branch predictor can learn by heart.
const DRAWN: usize = 1 << 14;
/// They lie between the size and this part of it: a step of the grid.
const SMALLEST_PART: f64 = 0.25;
/// Copies begin within a page, as far apart as malloc aligns.
const PLACES: usize = 4096;
const ALIGNED: usize = 16;

impl<'p, 's> SurveyArm<'p, 's> {
    pub fn new(way: Way, means: Means, place: &'p Place<'s>) -> Self {
        let name = way.to_string();
        Self { way, means, name, place }
    }

    /// Does it once, looks at what arrived, and says how much memory it held.
    pub fn try_out(&mut self) -> Result<Option<u64>, Failure> {
        match (self.place, self.means) {
            (Place::Ends(bench), Means::Mechanism(mechanism)) => {
                let mut bench = bench.borrow_mut();
                let tried = bench.check((mechanism, &self.way.tuning));
                if tried.is_err() {
                    renew(&mut bench)?;
                }
                tried
            }
            (Place::Memory(buffers), Means::Kernel(kernel)) => {
                buffers.borrow_mut().check(kernel).map(|()| Some(0))
            }
            _ => Err(misplaced()),
        }
    }

    /// Time on the clock of one transfer: the least of a few.
    pub fn calibrate(&mut self) -> Result<Duration, Failure> {
        self.place.repeat(1);
        let mut least = Duration::MAX;
        let mut took = Duration::ZERO;
        for _ in 0..5 {
            let one = self.sample()?.wall;
            (least, took) = (least.min(one), took + one);
            if took > LONG_ENOUGH {
                break;
            }
        }
        // A clock cannot see a single small copy: as many as can be told from nothing.
        let mut transfers = 1_u64;
        while least < CAN_BE_TIMED && transfers < MOST_CALLS {
            let now = self.place.repeat(transfers * 16);
            if now == transfers {
                break;
            }
            transfers = now;
            least = self.sample()?.wall;
        }
        Ok(least.div_f64(transfers as f64).max(Duration::from_nanos(1)))
    }
}

const LONG_ENOUGH: Duration = Duration::from_millis(5);
const CAN_BE_TIMED: Duration = Duration::from_micros(20);

impl Arm for SurveyArm<'_, '_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        match (self.place, self.means) {
            (Place::Ends(bench), Means::Mechanism(mechanism)) => {
                let mut bench = bench.borrow_mut();
                let sample = bench.sample((mechanism, &self.way.tuning));
                if sample.is_err() {
                    renew(&mut bench)?;
                }
                sample
            }
            (Place::Memory(buffers), Means::Kernel(kernel)) => {
                Ok(buffers.borrow_mut().sample(kernel))
            }
            _ => Err(misplaced()),
        }
    }
}

fn renew(bench: &mut Bench<'_>) -> Result<(), Failure> {
    bench.renew().map_err(|e| Failure::Unfit(Unfit::because(format!("new streams: {e}"))))
}

fn misplaced() -> Failure {
    Failure::Unfit(Unfit::because("copy kernels move memory to memory, mechanisms everything else"))
}

impl Buffers {
    /// With drawn sizes, or all exact.
    pub fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    fn resize(&mut self, size: usize) {
        if self.source.len() < size + PLACES {
            self.source = vec![0; size + PLACES];
            Pattern::new().fill(0, &mut self.source);
            self.sink = vec![1; size + PLACES];
        }
        (self.size, self.transfers) = (size, 1);
        // The same for every kernel and every session.
        let mut random = Random::new(size as u64);
        let draw = || {
            let mut place = || (random.unit() * (PLACES / ALIGNED) as f64) as usize * ALIGNED;
            let (from, to) = (place(), place());
            let len = (size as f64 * SMALLEST_PART.powf(random.unit())).ceil() as usize;
            Drawn { from, to, len }
        };
        self.drawn = std::iter::repeat_with(draw).take(DRAWN).collect();
    }

    fn check(&mut self, kernel: Ready) -> Result<(), Failure> {
        let (source, sink) = (&self.source[..self.size], &mut self.sink[..self.size]);
        sink.fill(0);
        kernel.copy(sink, source);
        if sink == source {
            return Ok(());
        }
        Err(Failure::Unfit(Unfit::because("copied other bytes")))
    }

    fn sample(&mut self, kernel: Ready) -> Sample {
        let (source, sink) = (&self.source[..], &mut self.sink[..]);
        let drawn = if self.exact { 0 } else { self.transfers / 2 };
        let exact = self.transfers - drawn;
        let mut bytes = self.size as u64 * exact;
        let meter = Meter::start();
        for Drawn { from, to, .. } in self.drawn.iter().cycle().take(exact as usize) {
            let (from, to) = (*from..*from + self.size, *to..*to + self.size);
            kernel.copy(black_box(&mut sink[to]), black_box(&source[from]));
        }
        for Drawn { from, to, len } in self.drawn.iter().cycle().take(drawn as usize) {
            let (from, to) = (*from..*from + len, *to..*to + len);
            kernel.copy(black_box(&mut sink[to]), black_box(&source[from]));
            bytes += *len as u64;
        }
        meter.stop(bytes)
    }
}

/// Every combination in which one knob is turned, the default not among them.
pub(super) fn one_knob_turned(mechanism: &dyn Mechanism) -> Vec<Tuning> {
    let knobs = mechanism.info().knobs.iter();
    let turned =
        knobs.flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)));
    turned.collect()
}
