//! The arms of a survey: a mechanism between real ends, a kernel on one or two buffers, or an arm of
//! the channel between two processes.

use std::{cell::RefCell, time::Duration};
use thalweg_core::{Mechanism, Tuning, Unfit};
use thalweg_kernels::{Ready, ReadyFill};
use thalweg_sys::host::memory_available;

use super::{bench::Bench, buffers::Buffers, job::Way, processes::Processes};
use crate::measure::{
    sample::Sample,
    schedule::{Arm, Failure, Sampled},
};

/// Where all arms of a session do their work, one after the other.
pub(super) enum Place<'s> {
    Ends(Box<RefCell<Bench<'s>>>),
    Memory(RefCell<Buffers>),
    Processes(Processes),
}

/// What does the work of a way.
#[derive(Clone, Copy)]
pub(super) enum Means {
    Mechanism(&'static dyn Mechanism),
    Kernel(Ready),
    Fill(ReadyFill),
    /// The arm of the way's name.
    Arm,
}

// Files of one sample: more would measure the folder.
const MOST_TRANSFERS: u64 = 256;
const MOST_CALLS: u64 = 1 << 24;

impl Place<'_> {
    /// From now on so many bytes are moved at a time.
    pub fn resize(&mut self, size: u64) -> std::io::Result<()> {
        match self {
            Self::Ends(bench) => bench.borrow_mut().resize(size),
            Self::Memory(buffers) => {
                let len = usize::try_from(size).map_err(|_| std::io::ErrorKind::InvalidInput)?;
                buffers.borrow_mut().resize(len);
                Ok(())
            }
            Self::Processes(processes) => {
                processes.size = size;
                Ok(())
            }
        }
    }

    /// So many transfers as a sample, as far as there is room for them.
    pub fn fitting(&self, transfers: u64) -> u64 {
        let most = match self {
            Self::Ends(bench) => {
                let bench = bench.borrow();
                (bench.room_for() / bench.size.max(1)).clamp(1, MOST_TRANSFERS)
            }
            Self::Memory(_) | Self::Processes(_) => MOST_CALLS,
        };
        transfers.clamp(1, most)
    }

    /// Whether so many ways may move so many bytes here.
    pub fn has_room(&self, size: u64, ways: usize) -> bool {
        match self {
            Self::Ends(bench) => size.saturating_mul(2) <= bench.borrow().room_for(),
            Self::Memory(_) => {
                let both = size.saturating_mul(2);
                memory_available().is_none_or(|available| both <= available)
            }
            Self::Processes(_) => Processes::has_room(size, ways),
        }
    }

    /// Has the way do it once and looks at what arrived: its arm, and how much memory it held.
    pub fn try_out<'p>(
        &'p self,
        way: &Way,
        means: Means,
    ) -> Result<(Sampled<'p>, Option<u64>), Failure> {
        match (self, means) {
            (Self::Ends(bench), Means::Mechanism(mechanism)) => {
                let arm = BetweenEnds { bench, mechanism, tuning: way.tuning.clone() };
                let held = arm.on_bench(Bench::check)?;
                Ok((Sampled::once(arm), held))
            }
            (Self::Memory(buffers), Means::Kernel(kernel)) => {
                buffers.borrow_mut().check_copy(kernel)?;
                let run = move |buffers: &mut Buffers| buffers.sample_copy(kernel);
                Ok((Sampled::once(InMemory { buffers, run }), Some(0)))
            }
            (Self::Memory(buffers), Means::Fill(fill)) => {
                buffers.borrow_mut().check_fill(fill)?;
                let run = move |buffers: &mut Buffers| buffers.sample_fill(fill);
                Ok((Sampled::once(InMemory { buffers, run }), Some(0)))
            }
            (Self::Processes(processes), Means::Arm) => {
                let arm = processes.open(way)?;
                Ok((Sampled { arm, repeats: 1 }, None))
            }
            _ => {
                let why = "kernels copy and fill memory, arms work between processes, mechanisms do \
                           the rest";
                Err(Failure::Unfit(Unfit::because(why)))
            }
        }
    }

    /// Time on the clock of one transfer: the least of a few.
    pub fn time_of_one(&self, arm: &mut dyn Arm) -> Result<Duration, Failure> {
        let mut least = Duration::MAX;
        let mut took = Duration::ZERO;
        for _ in 0..5 {
            let one = arm.sample(1)?.wall;
            (least, took) = (least.min(one), took + one);
            if took > LONG_ENOUGH {
                break;
            }
        }
        // A clock cannot see a single small copy: as many as can be told from nothing.
        let mut transfers = 1_u64;
        while least < CAN_BE_TIMED {
            let more = self.fitting(transfers * 16);
            if more == transfers {
                break;
            }
            transfers = more;
            least = arm.sample(transfers as u32)?.wall;
        }
        Ok(least.div_f64(transfers as f64).max(Duration::from_nanos(1)))
    }

    /// Has an arm's samples hold as many transfers as those of the reference; and more between ends,
    /// where they would not fill a sample: beside a reference that moves every byte, a way that moves
    /// none had samples of a single call, and whatever disturbed that decided.
    pub fn fill(&self, arm: &mut Sampled<'_>, sample: Duration, transfers: u64) {
        arm.repeats = transfers as u32;
        let Self::Ends(_) = self else { return };
        // What fails now fails in the rounds, which say so.
        let one = arm.arm.sample(1).map_or(sample, |one| one.wall);
        let fitting = sample.as_secs_f64() / one.as_secs_f64().max(1e-9);
        arm.repeats = self.fitting(transfers.max(fitting as u64)) as u32;
    }
}

const LONG_ENOUGH: Duration = Duration::from_millis(5);
const CAN_BE_TIMED: Duration = Duration::from_micros(20);

/// A mechanism between the ends of a bench.
pub(super) struct BetweenEnds<'p, 's> {
    pub bench: &'p RefCell<Bench<'s>>,
    pub mechanism: &'static dyn Mechanism,
    pub tuning: Tuning,
}

impl<'s> BetweenEnds<'_, 's> {
    /// After a failure the bench has new streams: nothing is known of what the old ones hold.
    pub fn on_bench<R>(
        &self,
        act: impl FnOnce(&mut Bench<'s>, (&dyn Mechanism, &Tuning)) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut bench = self.bench.borrow_mut();
        let done = act(&mut bench, (self.mechanism, &self.tuning));
        if done.is_err() {
            let failed = |e| Failure::Unfit(Unfit::because(format!("new streams: {e}")));
            bench.renew().map_err(failed)?;
        }
        done
    }
}

impl Arm for BetweenEnds<'_, '_> {
    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        self.bench.borrow_mut().transfers = u64::from(repeats);
        self.on_bench(Bench::sample)
    }
}

/// A kernel on the buffers of a session.
struct InMemory<'p, R> {
    buffers: &'p RefCell<Buffers>,
    run: R,
}

impl<R: Fn(&mut Buffers) -> Sample> Arm for InMemory<'_, R> {
    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        let mut buffers = self.buffers.borrow_mut();
        buffers.transfers = u64::from(repeats);
        Ok((self.run)(&mut buffers))
    }
}
