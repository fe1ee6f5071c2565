//! Machine-wide counters during a sample, and the time that threads of this process waited for a CPU. They are read
//! outside the timed part. A counter that cannot be read is always 0, so that no conclusion is drawn from it.

use serde::{Deserialize, Serialize};
use std::{
    fs::{read_dir, read_to_string},
    ops::AddAssign,
    time::Duration,
};

use crate::busy::Ticks;

/// Microseconds in which some task waited for a resource (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Pressure {
    pub cpu: u64,
    pub io: u64,
    pub memory: u64,
}

impl Pressure {
    #[allow(clippy::trivially_copy_pass_by_ref)] // Serde hands a reference.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Pressure {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.io += other.io;
        self.memory += other.memory;
    }
}

/// Machine-wide totals since boot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    pub stolen: u64,
    pub busy: u64,
    pub dirtied: u64,
    pub written: u64,
    pub pressure: Pressure,
    pub waited: Duration,
}

impl Around {
    pub fn now() -> Self {
        let vmstat = read_to_string("/proc/vmstat").unwrap_or_default();
        let waited = |resource| {
            let pressure = read_to_string(format!("/proc/pressure/{resource}"));
            total_in(&pressure.unwrap_or_default())
        };
        let (stolen, busy) = Ticks::now().map_or((0, 0), |ticks| (ticks.stolen, ticks.busy));
        Self {
            stolen,
            busy,
            dirtied: field(&vmstat, "nr_dirtied"),
            written: field(&vmstat, "nr_written"),
            pressure: Pressure { cpu: waited("cpu"), io: waited("io"), memory: waited("memory") },
            waited: in_line(),
        }
    }

    pub fn since(&self, earlier: &Self) -> Self {
        let (now, then) = (&self.pressure, &earlier.pressure);
        Self {
            stolen: self.stolen.saturating_sub(earlier.stolen),
            busy: self.busy.saturating_sub(earlier.busy),
            dirtied: self.dirtied.saturating_sub(earlier.dirtied),
            written: self.written.saturating_sub(earlier.written),
            pressure: Pressure {
                cpu: now.cpu.saturating_sub(then.cpu),
                io: now.io.saturating_sub(then.io),
                memory: now.memory.saturating_sub(then.memory),
            },
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// Returns how long the current threads of this process were ready to run but had no CPU. The schedstat file of the
/// process covers only its first thread.
fn in_line() -> Duration {
    let Ok(threads) = read_dir("/proc/self/task") else { return Duration::ZERO };
    let files = threads.flatten().map(|thread| thread.path().join("schedstat"));
    files.map(|file| delay_in(&read_to_string(file).unwrap_or_default())).sum()
}

/// Returns the second number of a schedstat (Documentation/scheduler/sched-stats.rst): nanoseconds on a run queue.
fn delay_in(schedstat: &str) -> Duration {
    let delay = schedstat.split_ascii_whitespace().nth(1).and_then(|delay| delay.parse().ok());
    Duration::from_nanos(delay.unwrap_or(0))
}

/// Returns the value of a line `name value`.
fn field(text: &str, name: &str) -> u64 {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Returns the `total` of the line `some`.
fn total_in(pressure: &str) -> u64 {
    let some = pressure.lines().find(|line| line.starts_with("some ")).unwrap_or_default();
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="));
    total.and_then(|total| total.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_their_files_and_nothing_is_zero() {
        assert_eq!(field("nr_dirtied_x 5\nnr_dirtied 7\n", "nr_dirtied"), 7);
        assert_eq!(total_in("some avg10=0.00 avg60=0.00 avg300=0.00 total=42\nfull total=1\n"), 42);
        assert_eq!((field("", "x"), total_in("")), (0, 0));
        assert_eq!(delay_in("9000 350 12\n"), Duration::from_nanos(350));
        assert_eq!((delay_in(""), delay_in("1 x")), (Duration::ZERO, Duration::ZERO));
    }
}
