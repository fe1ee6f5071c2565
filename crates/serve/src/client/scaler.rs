//! Decides how many connections fetch one file. It adds connections while the rate rises.

use std::time::Duration;

use thalweg_core::{
    Prefer,
    profile::{Evidence, Ratio},
    select::{Candidate, Judgement, Prior, rank},
};

/// Number of connections to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Adds connections while they raise the rate.
    Auto,
    /// Exactly this number.
    Exactly(usize),
}

/// Advice on changing the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingAdvice {
    Stay,
    Add,
    /// The last connection made the transfer slower.
    Drop,
}

/// Decides on connections by the rate that the caller reports once per tick.
#[derive(Debug)]
pub struct ConnectionScaler {
    most: usize,
    connections: usize,
    /// Bytes received in each tick since the number of connections changed.
    ticks: Vec<f64>,
    last: Option<u64>,
    /// The rate with one connection fewer.
    before: Option<TickRate>,
    is_over: bool,
}

/// Interval between two calls of [`ConnectionScaler::tick`]. It is a measurement interval, not a timeout.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks during which a new connection is still gaining speed.
const WARM_UP: usize = 4;
/// Ticks in a comparison of rates. With the warm-up, a connection that slows down the others ends within 2 s.
const COMPARED: usize = 10;
/// More connections from one client would be abuse of the server.
const MOST: usize = 8;

impl ConnectionScaler {
    /// Creates a scaler that begins with one connection.
    pub fn new(connections: Connections) -> Self {
        let most = match connections {
            Connections::Auto => MOST,
            Connections::Exactly(number) => number.max(1),
        };
        Self {
            most,
            connections: 1,
            ticks: Vec::new(),
            last: None,
            before: None,
            is_over: most == 1 || connections != Connections::Auto,
        }
    }

    /// Records the end of a tick. `there`: the number of bytes present.
    pub fn tick(&mut self, there: u64) -> ScalingAdvice {
        let came = there.saturating_sub(self.last.unwrap_or(there)) as f64;
        let is_first = self.last.replace(there).is_none();
        if self.is_over || is_first {
            return ScalingAdvice::Stay;
        }
        self.ticks.push(came);
        if self.ticks.len() < WARM_UP + COMPARED {
            return ScalingAdvice::Stay;
        }
        let now = TickRate::of(&self.ticks[WARM_UP..]);
        self.ticks.clear();
        match self.before {
            Some(before) if !is_shown_faster(now, before) => {
                self.is_over = true;
                self.connections -= 1;
                ScalingAdvice::Drop
            }
            _ if self.connections >= self.most => {
                self.is_over = true;
                ScalingAdvice::Stay
            }
            _ => {
                self.before = Some(now);
                self.connections += 1;
                ScalingAdvice::Add
            }
        }
    }
}

/// Bytes per tick: mean and standard error.
#[derive(Clone, Copy, Debug)]
struct TickRate {
    mean: f64,
    error: f64,
}

impl TickRate {
    fn of(ticks: &[f64]) -> Self {
        let count = ticks.len() as f64;
        let mean = ticks.iter().sum::<f64>() / count;
        let variance = ticks.iter().map(|tick| (tick - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self { mean, error: (variance / count).sqrt() }
    }

    /// Returns the time per byte, as a ratio to that of `reference`. The interval is two standard errors wide on each
    /// side.
    fn as_evidence(self, reference: Self) -> Evidence {
        // Without any byte, the rate counts as one byte per tick.
        let cost = |rate: f64| reference.mean.max(1.0) / rate.max(1.0);
        let (lo, hi) = (cost(self.mean + 2.0 * self.error), cost(self.mean - 2.0 * self.error));
        let wall = Ratio { ratio: cost(self.mean), lo, hi };
        Evidence::of_this_run(wall, wall, COMPARED as u32)
    }
}

/// Returns `true` if [`rank`] prefers the larger number of connections and judges the smaller one to be slower. If no
/// difference is shown, `rank` prefers fewer connections, which load the server less.
fn is_shown_faster(more: TickRate, fewer: TickRate) -> bool {
    let candidate = |name, rate: TickRate| Candidate {
        name,
        fits: Ok(()),
        prior: Prior::NONE,
        evidence: Some(rate.as_evidence(fewer)),
    };
    let verdicts = rank(vec![candidate("fewer", fewer), candidate("more", more)], Prefer::Wall);
    matches!(&verdicts[..], [first, second]
        if first.mechanism == "more" && matches!(second.judgement, Judgement::Slower { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a link with this rate per number of connections. Returns the largest and the final number of
    /// connections.
    fn on(rate: impl Fn(usize) -> f64, noise: f64) -> (usize, usize) {
        let (mut scaler, mut connections, mut most, mut there) =
            (ConnectionScaler::new(Connections::Auto), 1, 1, 0.0);
        for n in 0..1000 {
            // Fluctuation without a period that the averaging window could match.
            let swing = f64::from((n * 7919 % 13) - 6) / 6.0;
            there += rate(connections) * (1.0 + noise * swing);
            match scaler.tick(there as u64) {
                ScalingAdvice::Add => connections += 1,
                ScalingAdvice::Drop => connections -= 1,
                ScalingAdvice::Stay => {}
            }
            most = most.max(connections);
        }
        (most, connections)
    }

    #[test]
    fn connections_are_added_while_they_raise_the_rate() {
        // A server that limits the rate of each connection, up to the capacity of the link.
        let limited = |most: usize| move |n: usize| 1e6 * n.min(most) as f64;
        assert_eq!(on(limited(3), 0.1), (4, 3));
        assert_eq!(on(limited(100), 0.1), (MOST, MOST));
    }

    #[test]
    fn one_that_gains_nothing_or_costs_is_given_up() {
        assert_eq!(on(|_| 1e8, 0.2), (2, 1));
        assert_eq!(on(|n| 1e8 / n as f64, 0.2), (2, 1));
        assert_eq!(on(|_| 0.0, 0.0).1, 1);
    }

    #[test]
    fn a_number_that_was_said_is_not_changed() {
        let mut scaler = ConnectionScaler::new(Connections::Exactly(4));
        assert!((0..100).all(|n| scaler.tick(n * 1000) == ScalingAdvice::Stay));
    }
}
