//! CPU activity of the machine: CPU time used by other processes, and CPU time stolen by the hypervisor.

use serde::Serialize;
use std::{fmt, fs::read_to_string, thread, time::Duration};

/// How busy the machine is with other processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BusyProcessors {
    /// The average number of busy CPUs.
    pub processors: f64,
    pub of: usize,
}

/// Formats as `1.3 of 2 cores`.
impl fmt::Display for BusyProcessors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} of {} cores", self.processors, self.of)
    }
}

impl BusyProcessors {
    /// Measures for 200 ms. Returns `None` if /proc/stat cannot be read.
    pub fn now() -> Option<Self> {
        Self::within(Duration::from_millis(200))
    }

    /// Measures for 100 ms (a few clock ticks), for callers that poll.
    pub fn briefly() -> Option<Self> {
        Self::within(Duration::from_millis(100))
    }

    fn within(moment: Duration) -> Option<Self> {
        let before = Ticks::now()?;
        thread::sleep(moment);
        let after = Ticks::now()?;
        let passed = after.all.saturating_sub(before.all).max(1);
        let share = after.busy.saturating_sub(before.busy) as f64 / passed as f64;
        Some(Self { processors: share * after.processors as f64, of: after.processors })
    }

    /// Returns `true` if at least a tenth of the machine's CPU time was used.
    pub fn is_much(&self) -> bool {
        self.processors >= 0.1 * self.of as f64
    }

    /// Returns `true` if [`is_much`](Self::is_much) holds and at least half a CPU was used. Less is
    /// normal background activity.
    pub fn is_crowded(&self) -> bool {
        self.processors >= 0.5 && self.is_much()
    }

    /// Returns the busier of two measurements.
    #[must_use]
    pub fn or_busier(self, other: Self) -> Self {
        if other.processors > self.processors { other } else { self }
    }
}

/// /proc reports 100 ticks per second (`USER_HZ`), independent of the kernel's `HZ`.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Clock ticks of all CPUs since boot (proc_stat(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    pub busy: u64,
    all: u64,
    /// Ticks that the hypervisor gave to other guests; included in `busy`.
    pub stolen: u64,
    processors: usize,
}

impl Ticks {
    pub fn now() -> Option<Self> {
        Self::read(&read_to_string("/proc/stat").ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        let mut lines = stat.lines();
        let first = lines.next()?.strip_prefix("cpu ")?;
        // The ninth and tenth fields (guest time) are already included in the first two.
        let ticks: Vec<u64> =
            first.split_whitespace().take(8).filter_map(|t| t.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        let processors = lines.take_while(|line| line.starts_with("cpu")).count();
        Some(Self { busy: all - idle, all, stolen: *ticks.get(7).unwrap_or(&0), processors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_from_the_first_line_and_processors_are_counted() {
        let stat = "cpu  1 2 3 40 5 6 7 8 90 0\ncpu0 0\ncpu1 0\nintr 5\n";
        let read = Ticks { busy: 27, all: 72, stolen: 8, processors: 2 };
        assert_eq!(Ticks::read(stat), Some(read));
        assert_eq!(Ticks::read(""), None);
    }
}
