//! Polling, and when to end it.

use super::Wait;
use crate::link::Peer;
use crate::shared::liveness::LOOKS_BEFORE_RECHECK;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::time::{Duration, Instant};

/// Number of reads of the data word between two checks of the clock and of the peer's state. These checks cost more.
const STRIDE: u32 = 64;

/// Returns `true` if this process and the peer share a single processor, so that only one of them can run at a time.
/// Returns `false` if each is pinned to a different processor, although each process alone sees only one.
pub(crate) fn is_alone_with(peer: &Peer) -> bool {
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        return false;
    }
    let theirs = i32::try_from(peer.pid).ok().and_then(Pid::from_raw);
    let theirs = theirs.and_then(|pid| sched_getaffinity(Some(pid)).ok());
    match (sched_getaffinity(None), theirs) {
        // A mask of several processors and a parallelism of 1 mean that a cgroup quota applies. Polling then takes time
        // from the peer, on whatever processor it runs.
        (Ok(ours), Some(theirs)) => ours.count() > 1 || is_one(&ours, &theirs),
        _ => true,
    }
}

/// Returns `true` if both sets together have at most one processor.
fn is_one(ours: &CpuSet, theirs: &CpuSet) -> bool {
    let either = |n: &usize| ours.is_set(*n) || theirs.is_set(*n);
    (0..CpuSet::MAX_CPU).filter(either).count() <= 1
}

/// The next action, after a check that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpinTurn {
    /// Check the data again.
    Look,
    /// Check the data, the peer's words and the deadline.
    LookAround,
    /// Like [`SpinTurn::LookAround`], and also ask the kernel if the peer lives.
    Doubt,
    /// Stop polling and sleep.
    Sleep,
}

/// State of polling during one wait.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// Maximum polling time; `None` polls without limit.
    spin: Option<Duration>,
    /// Latest end of polling. Set at the first reading of the clock, because most waits end before that.
    until: Option<Instant>,
    alone: bool,
    turns: u32,
}

impl Spinner {
    /// Starts a wait. `alone` is `true` if both ends share a single processor.
    #[inline]
    pub(crate) fn new(wait: Wait, alone: bool) -> Self {
        let spin = match wait {
            Wait::Spin => None,
            Wait::Hybrid { spin } if !alone => Some(spin),
            _ => Some(Duration::ZERO),
        };
        Self { spin, until: None, alone, turns: 0 }
    }

    /// Pauses briefly and returns the next action.
    #[inline]
    pub(crate) fn turn(&mut self) -> SpinTurn {
        if self.spin == Some(Duration::ZERO) {
            return SpinTurn::Sleep;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.alone {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if self.turns.is_multiple_of(STRIDE) { self.look_around() } else { SpinTurn::Look }
    }

    #[cold]
    fn look_around(&mut self) -> SpinTurn {
        if let Some(spin) = self.spin {
            let now = Instant::now();
            match self.until {
                Some(until) if now >= until => return SpinTurn::Sleep,
                Some(_) => {}
                None => self.until = now.checked_add(spin),
            }
        }
        let looks = self.turns / STRIDE;
        if looks.is_multiple_of(LOOKS_BEFORE_RECHECK) {
            SpinTurn::Doubt
        } else {
            SpinTurn::LookAround
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_decision(wait: Wait, alone: bool) -> SpinTurn {
        let mut spinner = Spinner::new(wait, alone);
        loop {
            match spinner.turn() {
                SpinTurn::Look => {}
                decision => return decision,
            }
        }
    }

    fn set(numbers: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for n in numbers {
            set.set(*n);
        }
        set
    }

    #[test]
    fn two_that_are_kept_on_a_processor_each_are_not_alone() {
        assert!(!is_one(&set(&[0]), &set(&[1])));
        assert!(!is_one(&set(&[1]), &set(&[0, 1])));
        assert!(is_one(&set(&[1]), &set(&[1])));
    }

    #[test]
    fn every_kind_of_waiting_does_what_it_says() {
        assert_eq!(first_decision(Wait::Block, false), SpinTurn::Sleep);
        assert_eq!(first_decision(Wait::Spin, false), SpinTurn::LookAround);
        assert_eq!(first_decision(Wait::Spin, true), SpinTurn::LookAround);
        assert_eq!(first_decision(Wait::HYBRID, true), SpinTurn::Sleep);
        assert_eq!(first_decision(Wait::Hybrid { spin: Duration::ZERO }, false), SpinTurn::Sleep);
        let long = Wait::Hybrid { spin: Duration::from_secs(9) };
        assert_eq!(first_decision(long, false), SpinTurn::LookAround);
    }
}
