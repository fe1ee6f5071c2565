//! Decides how many connections fetch one file: it adds one as long as the rate rises.

use std::time::Duration;

/// Number of connections to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// As many as raise the rate.
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

/// Measures the rate. The caller reports the number of bytes present once per tick.
#[derive(Debug)]
pub struct ConnectionScaler {
    most: usize,
    connections: usize,
    /// Bytes received in each tick since the number of connections changed.
    ticks: Vec<f64>,
    last: Option<u64>,
    /// Mean and standard error of the rate with one connection fewer.
    before: Option<(f64, f64)>,
    is_over: bool,
}

/// Interval between two calls of [`ConnectionScaler::tick`].
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks during which a new connection is still gaining speed.
const WARM_UP: usize = 4;
/// Ticks that are compared. With the warm-up, a connection that slows down the others ends within 2 s.
const COMPARED: usize = 10;
/// More connections from one client would be abuse of the server.
const MOST: usize = 8;

impl ConnectionScaler {
    /// Begins with one connection.
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
        let now = mean_and_error(&self.ticks[WARM_UP..]);
        self.ticks.clear();
        match self.before {
            Some(before) if now.0 <= before.0 + noise(before, now) => {
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

fn mean_and_error(ticks: &[f64]) -> (f64, f64) {
    let count = ticks.len() as f64;
    let mean = ticks.iter().sum::<f64>() / count;
    let variance = ticks.iter().map(|tick| (tick - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// Returns the largest difference of two means that noise explains.
fn noise(one: (f64, f64), other: (f64, f64)) -> f64 {
    2.0 * (one.1.powi(2) + other.1.powi(2)).sqrt()
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
