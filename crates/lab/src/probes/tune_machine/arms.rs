//! Where the arms of a survey work, and which of them: mechanisms between real ends, kernels on two
//! buffers, arms of the channel between two processes.

use std::{cell::RefCell, io, time::Duration};
use thalweg_core::{
    Facts, Guarantees, Unfit, mechanisms,
    profile::{FILL, SinkState},
};
use thalweg_kernels::FILLS;
use thalweg_sys::host::memory_available;

use super::{
    job::{EndKeys, Line, SessionJob, Way},
    pair::Ends,
    processes::{self, Processes},
    ways,
};
use crate::{
    arms::{
        memory::{Buffers, Kernel, OnBuffers},
        transfer::{Terms, Whole, WholeArm},
    },
    measure::{
        Stop,
        schedule::{Arm, Failure, Sampled},
    },
};

/// Where all arms of a session do their work, one after the other.
pub(super) enum Place<'s> {
    Ends(Box<RefCell<Whole<'s>>>),
    Memory { buffers: RefCell<Buffers>, fills: bool },
    Processes(Processes),
}

// Files of one sample: more would measure the folder.
const MOST_TRANSFERS: u64 = 256;
const MOST_CALLS: u64 = 1 << 24;

/// Transfers between such ends.
pub(super) fn whole<'s>(
    ends: &Ends,
    state: SinkState,
    stop: &'s Stop<'s>,
) -> io::Result<Whole<'s>> {
    // A mechanism that promises less may take part: the planner knows who needs more.
    let terms = Terms { state, needs: Guarantees::SHARED, stop };
    Whole::between(ends.source.medium(), ends.sink.medium(), terms)
}

/// How a profile names ends of which the planner knows this.
pub(super) fn keys_of(facts: &Facts) -> EndKeys {
    let options = [&facts.source, &facts.sink]
        .map(|end| end.fs.as_ref().map(|fs| fs.options.clone()).unwrap_or_default());
    EndKeys { source: facts.source.key(), sink: facts.sink.key(), options }
}

impl<'s> Place<'s> {
    /// Makes the ends of a job, tells how a profile names them, and the ways that take part: the
    /// reference is the first.
    pub fn open(
        job: &SessionJob,
        stop: &'s Stop<'s>,
        answer: &mut dyn FnMut(Line),
    ) -> Result<(Self, Vec<Way>), Failure> {
        let failed = |e: io::Error| Unfit::because(format!("{}: {e}", job.ends));
        if job.ends.are_memory() {
            let fills = job.ends.are_fill();
            let [source, sink] = [if fills { FILL } else { "memory" }, "memory"].map(str::to_owned);
            answer(Line::Ends(EndKeys { source, sink, options: Default::default() }));
            let buffers = RefCell::new(Buffers::new(job.exact));
            return Ok((Self::Memory { buffers, fills }, ways::of_kernels(job, answer)));
        }
        if job.ends.are_processes() {
            let processes = Processes::new(&job.ends, job.sink_state).map_err(failed)?;
            answer(Line::Ends(processes::keys(&job.ends)));
            return Ok((Self::Processes(processes), ways::of_arms(job, answer)));
        }
        let mut whole = whole(&job.ends, job.sink_state, stop).map_err(failed)?;
        whole.resize(job.sizes.first().copied().unwrap_or(1)).map_err(failed)?;
        let facts = whole.facts()?;
        answer(Line::Ends(keys_of(&facts)));
        let ways = ways::of_mechanisms(job, &facts, answer);
        Ok((Self::Ends(Box::new(RefCell::new(whole))), ways))
    }

    /// From now on so many bytes are moved at a time.
    pub fn resize(&mut self, size: u64) -> io::Result<()> {
        match self {
            Self::Ends(whole) => whole.get_mut().resize(size)?,
            Self::Memory { buffers, .. } => {
                let len = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
                buffers.get_mut().resize(len);
            }
            Self::Processes(processes) => processes.size = size,
        }
        Ok(())
    }

    /// So many transfers as a sample, as far as there is room for them.
    pub fn fitting(&self, transfers: u64) -> u64 {
        let most = match self {
            Self::Ends(whole) => {
                let mut whole = whole.borrow_mut();
                (whole.room() / whole.size.max(1)).clamp(1, MOST_TRANSFERS)
            }
            Self::Memory { .. } | Self::Processes(_) => MOST_CALLS,
        };
        transfers.clamp(1, most)
    }

    /// Whether so many ways may move so many bytes here.
    pub fn has_room(&self, size: u64, ways: usize) -> bool {
        let both = size.saturating_mul(2);
        match self {
            Self::Ends(whole) => both <= whole.borrow_mut().room(),
            Self::Memory { .. } => memory_available().is_none_or(|available| both <= available),
            // Each way may keep a buffer of its own, at either side.
            Self::Processes(_) => {
                let most = both.saturating_mul(ways as u64);
                memory_available().is_none_or(|available| most <= available)
            }
        }
    }

    /// Has the way do it once and looks at what arrived: its arm, and how much memory it held.
    pub fn try_out<'p>(&'p self, way: &Way) -> Result<(Sampled<'p>, Option<u64>), Failure> {
        let unknown = || Unfit::because(format!("there is no {way} here"));
        match self {
            Self::Ends(place) => {
                let mechanism = mechanisms::by_name(&way.name).ok_or_else(unknown)?;
                let arm = WholeArm { place, mechanism, tuning: way.tuning.clone() };
                let held = arm.try_out()?;
                Ok((Sampled::once(arm), held))
            }
            Self::Memory { buffers, fills } => {
                let kernel = if *fills {
                    let row = FILLS.iter().find(|row| row.name == way.name);
                    row.and_then(thalweg_kernels::Fill::ready).map(Kernel::Fill)
                } else {
                    let row = thalweg_kernels::by_name(&way.name);
                    row.and_then(thalweg_kernels::Kernel::ready).map(Kernel::Copy)
                };
                let mut arm = OnBuffers { buffers, kernel: kernel.ok_or_else(unknown)? };
                arm.check()?;
                Ok((Sampled::once(arm), Some(0)))
            }
            Self::Processes(processes) => {
                Ok((Sampled { arm: processes.open(way)?, repeats: 1 }, None))
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
