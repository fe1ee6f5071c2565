//! Looking again and again, and when to stop doing it.

use super::Wait;
use std::time::Instant;

/// How often the clock and the peer's health are looked at: they cost more than the data word.
const STRIDE: u32 = 64;

/// What to do after a look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Look at the data again.
    Look,
    /// Look at the peer's health and the deadline as well.
    LookAround,
    /// Enough: sleep.
    Sleep,
}

/// One period of waiting.
#[derive(Debug)]
pub(crate) struct Spinner {
    until: Option<Instant>,
    for_ever: bool,
    alone: bool,
    turns: u32,
}

impl Spinner {
    /// `alone`: only one processor may be used, so the peer runs when we do not.
    pub(crate) fn new(wait: Wait, alone: bool) -> Self {
        let until = match wait {
            Wait::Hybrid { spin } if !alone && !spin.is_zero() => Instant::now().checked_add(spin),
            _ => None,
        };
        Self { until, for_ever: wait == Wait::Spin, alone, turns: 0 }
    }

    /// Passes a moment and says what next.
    pub(crate) fn turn(&mut self) -> Turn {
        if !self.for_ever && self.until.is_none() {
            return Turn::Sleep;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.alone {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if !self.turns.is_multiple_of(STRIDE) {
            return Turn::Look;
        }
        match self.until {
            Some(until) if Instant::now() >= until => Turn::Sleep,
            _ => Turn::LookAround,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn first_decision(wait: Wait, alone: bool) -> Turn {
        let mut spinner = Spinner::new(wait, alone);
        loop {
            match spinner.turn() {
                Turn::Look => {}
                decision => return decision,
            }
        }
    }

    #[test]
    fn every_kind_of_waiting_does_what_it_says() {
        assert_eq!(first_decision(Wait::Block, false), Turn::Sleep);
        assert_eq!(first_decision(Wait::Spin, false), Turn::LookAround);
        assert_eq!(first_decision(Wait::Spin, true), Turn::LookAround);
        assert_eq!(first_decision(Wait::HYBRID, true), Turn::Sleep);
        assert_eq!(first_decision(Wait::Hybrid { spin: Duration::ZERO }, false), Turn::Sleep);
        let long = Wait::Hybrid { spin: Duration::from_secs(9) };
        assert_eq!(first_decision(long, false), Turn::LookAround);
    }
}
