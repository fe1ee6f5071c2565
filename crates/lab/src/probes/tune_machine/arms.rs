//! The arms of a survey: a mechanism between real ends, a kernel on one or two buffers, or an arm of
//! the channel between two processes.

use std::{cell::RefCell, time::Duration};
use thalweg_core::{Mechanism, Unfit};
use thalweg_kernels::{Ready, ReadyFill};
use thalweg_sys::host::memory_available;

use super::{bench::Bench, buffers::Buffers, job::Way, processes::Processes};
use crate::measure::{
    sample::Sample,
    schedule::{Arm, Failure},
};

/// Where all arms of a session do their work, one after the other.
pub(super) enum Place<'s> {
    Ends(Box<RefCell<Bench<'s>>>),
    Memory(RefCell<Buffers>),
    Processes(RefCell<Processes>),
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

/// A way at work.
pub(super) struct SurveyArm<'p, 's> {
    pub way: Way,
    means: Means,
    place: &'p Place<'s>,
    /// Transfers in each of its samples between ends; as many as the place has until it has its own.
    transfers: Option<u64>,
    /// The two ends of an arm, once they have been tried.
    piece: Option<Box<dyn Arm>>,
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
            Self::Processes(processes) => {
                let mut processes = processes.borrow_mut();
                (processes.size, processes.transfers) = (size, 1);
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
            Self::Processes(processes) => {
                let mut processes = processes.borrow_mut();
                processes.transfers = transfers.clamp(1, MOST_CALLS);
                processes.transfers
            }
        }
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
}

// Files of one sample: more would measure the folder.
const MOST_TRANSFERS: u64 = 256;
const MOST_CALLS: u64 = 1 << 24;

impl<'p, 's> SurveyArm<'p, 's> {
    pub fn new(way: Way, means: Means, place: &'p Place<'s>) -> Self {
        Self { way, means, place, transfers: None, piece: None }
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
                buffers.borrow_mut().check_copy(kernel).map(|()| Some(0))
            }
            (Place::Memory(buffers), Means::Fill(fill)) => {
                buffers.borrow_mut().check_fill(fill).map(|()| Some(0))
            }
            (Place::Processes(processes), Means::Arm) => {
                let piece = processes.borrow().open(&self.way).map_err(Failure::Unfit)?;
                self.piece = Some(piece);
                Ok(None)
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
            let one = self.sample(1)?.wall;
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
            least = self.sample(1)?.wall;
        }
        Ok(least.div_f64(transfers as f64).max(Duration::from_nanos(1)))
    }

    /// From now on each of its samples holds so many transfers.
    pub fn hold(&mut self, transfers: u64) {
        self.transfers = Some(transfers);
    }

    /// The same, and more where they would not fill a sample: beside a reference that moves every byte,
    /// a way that moves none had samples of a single call, and whatever disturbed that decided.
    pub fn fill(&mut self, sample: Duration, transfers: u64) {
        let Place::Ends(_) = self.place else { return };
        self.transfers = Some(self.place.repeat(1));
        // What fails now fails in the rounds, which say so.
        let one = self.sample(1).map_or(sample, |one| one.wall);
        let fitting = sample.as_secs_f64() / one.as_secs_f64().max(1e-9);
        self.hold(self.place.repeat(transfers.max(fitting as u64)));
    }
}

const LONG_ENOUGH: Duration = Duration::from_millis(5);
const CAN_BE_TIMED: Duration = Duration::from_micros(20);

impl Arm for SurveyArm<'_, '_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
        match (self.place, self.means) {
            (Place::Ends(bench), Means::Mechanism(mechanism)) => {
                let mut bench = bench.borrow_mut();
                bench.transfers = self.transfers.unwrap_or(bench.transfers);
                let sample = bench.sample((mechanism, &self.way.tuning));
                if sample.is_err() {
                    renew(&mut bench)?;
                }
                sample
            }
            (Place::Memory(buffers), Means::Kernel(kernel)) => {
                Ok(buffers.borrow_mut().sample_copy(kernel))
            }
            (Place::Memory(buffers), Means::Fill(fill)) => {
                Ok(buffers.borrow_mut().sample_fill(fill))
            }
            (Place::Processes(processes), Means::Arm) => {
                let transfers = processes.borrow().transfers as u32;
                self.piece
                    .as_mut()
                    .map_or_else(|| Err(misplaced()), |piece| piece.sample(transfers))
            }
            _ => Err(misplaced()),
        }
    }
}

fn renew(bench: &mut Bench<'_>) -> Result<(), Failure> {
    bench.renew().map_err(|e| Failure::Unfit(Unfit::because(format!("new streams: {e}"))))
}

fn misplaced() -> Failure {
    let why = "kernels copy and fill memory, arms work between processes, mechanisms do the rest";
    Failure::Unfit(Unfit::because(why))
}
