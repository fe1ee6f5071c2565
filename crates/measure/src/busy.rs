//! CPU activity of the machine: CPU time used by other processes, and CPU time stolen by the hypervisor.

use rustix::thread::sched_getaffinity;
use serde::Serialize;
use std::{fmt, fs::read_to_string, thread, time::Duration};

/// How busy other processes keep the CPUs that this thread may use.
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
        let before = Ticks::of_allowed()?;
        thread::sleep(moment);
        let after = Ticks::of_allowed()?;
        let passed = after.all.saturating_sub(before.all).max(1);
        let share = after.busy.saturating_sub(before.busy) as f64 / passed as f64;
        Some(Self { processors: share * after.processors as f64, of: after.processors })
    }

    /// Returns `true` if at least a tenth of the CPU time was used.
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

/// Clock ticks of some or all CPUs since boot (proc_stat(5)).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    pub busy: u64,
    all: u64,
    /// Ticks that the hypervisor gave to other guests; included in `busy`.
    pub stolen: u64,
    processors: usize,
}

impl Ticks {
    /// Returns the ticks of all CPUs.
    pub fn now() -> Option<Self> {
        Self::read(&read_to_string("/proc/stat").ok()?, |_| true)
    }

    /// Returns the ticks of the CPUs that this thread may use. A container on a large machine often has only a few.
    fn of_allowed() -> Option<Self> {
        let stat = read_to_string("/proc/stat").ok()?;
        let allowed = sched_getaffinity(None).ok()?;
        Self::read(&stat, |cpu| allowed.is_set(cpu))
    }

    /// Adds the ticks of the CPUs with these numbers.
    fn read(stat: &str, is_counted: impl Fn(usize) -> bool) -> Option<Self> {
        let mut sum = Self::default();
        for line in stat.lines().filter_map(|line| line.strip_prefix("cpu")) {
            let (number, ticks) = line.split_once(' ')?;
            // The first line, without a number, is the sum of all.
            if !number.parse().is_ok_and(&is_counted) {
                continue;
            }
            // The ninth and tenth fields (guest time) are already included in the first two.
            let ticks: Vec<u64> =
                ticks.split_whitespace().take(8).filter_map(|t| t.parse().ok()).collect();
            let all: u64 = ticks.iter().sum();
            sum.all += all;
            sum.busy += all - (ticks.get(3)? + ticks.get(4).unwrap_or(&0));
            sum.stolen += ticks.get(7).unwrap_or(&0);
            sum.processors += 1;
        }
        Some(sum).filter(|sum| sum.processors > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_named_processors_are_added() {
        let stat = "cpu  9 9 9 99 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 90 0\ncpu1 0 1 0 9\nintr 5\n";
        let first = Ticks { busy: 27, all: 72, stolen: 8, processors: 1 };
        assert_eq!(Ticks::read(stat, |cpu| cpu == 0), Some(first));
        let both = Ticks { busy: 28, all: 82, stolen: 8, processors: 2 };
        assert_eq!(Ticks::read(stat, |_| true), Some(both));
        assert_eq!(Ticks::read(stat, |cpu| cpu == 2), None);
        assert_eq!(Ticks::read("", |_| true), None);
    }
}
