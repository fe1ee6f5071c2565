//! One sample of one arm (a compared variant), and the meter that takes it.

mod around;

pub use around::Pressure;

use serde::{Deserialize, Serialize};
use std::{
    ops::AddAssign,
    time::{Duration, Instant},
};
use thalweg_sys::usage::Usage;

use around::Around;

/// The measured cost of one timed piece of work. CPU time, faults and switches are those of the whole process and of
/// the children that it waited for during the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Sample {
    /// Wall time. A saved sample has all durations in seconds, and omits counts of zero.
    #[serde(with = "seconds")]
    pub wall: Duration,
    /// CPU time in user mode.
    #[serde(with = "seconds")]
    pub user: Duration,
    /// CPU time in the kernel, without later work of kernel threads (writeback).
    #[serde(with = "seconds")]
    pub sys: Duration,
    /// Page faults without I/O.
    #[serde(default, skip_serializing_if = "is_none")]
    pub minor_faults: u64,
    /// Page faults with I/O.
    #[serde(default, skip_serializing_if = "is_none")]
    pub major_faults: u64,
    #[serde(default, skip_serializing_if = "is_none")]
    pub voluntary_switches: u64,
    /// Number of involuntary context switches.
    #[serde(default, skip_serializing_if = "is_none")]
    pub involuntary_switches: u64,
    pub bytes: u64,
    /// Number of system calls, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The kind of calls that were counted.
    #[serde(default, skip_serializing_if = "CallsKind::is_all")]
    pub calls_kind: CallsKind,
    /// The part of `user` that a peer process used (a receiver or a consumer).
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub far_user: Duration,
    /// The part of `sys` that a peer process used.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub far_sys: Duration,
    /// Clock ticks that the hypervisor gave to other guests, over all CPUs.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stolen_ticks: u64,
    /// A number reported by the work itself, in its own unit; 0 if it reported none.
    #[serde(default, rename = "told", skip_serializing_if = "is_zero")]
    pub reported: f64,
    /// Pages that became dirty during the sample, by any process of the machine.
    #[serde(default, skip_serializing_if = "is_none")]
    pub dirtied_pages: u64,
    /// Pages written back during the sample, by any process of the machine.
    #[serde(default, skip_serializing_if = "is_none")]
    pub written_pages: u64,
    /// Time during which some task of the machine waited for a resource.
    #[serde(default, skip_serializing_if = "Pressure::is_none")]
    pub pressure: Pressure,
    /// Total time that threads of this process waited for a CPU.
    #[serde(default, with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub waited: Duration,
    /// Clock ticks during which a CPU of the machine was busy, with any work.
    #[serde(default, skip_serializing_if = "is_none")]
    pub busy_ticks: u64,
}

/// The kind of system calls that a count includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallsKind {
    /// All calls that move bytes, counted at the call site: by thalweg, or by a program that reports its own count.
    #[default]
    Counted,
    /// Reads and writes, counted by the kernel; see `arms/worker/calls.rs` in `thalweg-lab`.
    ReadWrite,
}

impl CallsKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::ReadWrite => "read-write",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // Serde hands a reference.
    fn is_all(&self) -> bool {
        *self == Self::Counted
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde hands a reference.
fn is_none(count: &u64) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde hands a reference.
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

mod seconds {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}

// getrusage counts whole microseconds, so a reading of 0 may be up to one microsecond.
const LEAST_CPU: f64 = 1e-6;

impl Sample {
    /// Returns user and system time together, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.user.saturating_add(self.sys).as_secs_f64().max(LEAST_CPU)
    }

    /// Returns wall time in seconds.
    pub fn wall_seconds(&self) -> f64 {
        self.wall.as_secs_f64().max(1e-9)
    }

    /// Returns this sample with the resource usage replaced by `used`. The wall time stays.
    #[must_use]
    pub fn using(self, used: &Usage) -> Self {
        Self {
            user: used.user,
            sys: used.sys,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            ..self
        }
    }

    /// Samples this number of operations (at least one) in batches of at most `most`, and returns the sum.
    pub fn of_batches<E>(
        operations: u32,
        most: u32,
        mut batch: impl FnMut(u32) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let most = most.max(1);
        let first = operations.clamp(1, most);
        let (mut sum, mut left) = (batch(first)?, operations.saturating_sub(first));
        while left > 0 {
            let count = left.min(most);
            sum += batch(count)?;
            left -= count;
        }
        Ok(sum)
    }

    /// Adds the resource usage and system calls of a peer process for the same work.
    pub fn add_far(&mut self, used: &Usage, calls: u64) {
        self.user += used.user;
        self.sys += used.sys;
        self.far_user += used.user;
        self.far_sys += used.sys;
        self.minor_faults += used.minor_faults;
        self.major_faults += used.major_faults;
        self.voluntary_switches += used.voluntary_switches;
        self.involuntary_switches += used.involuntary_switches;
        self.calls = self.calls.map(|own| own + calls);
    }

    /// Returns minor and major faults together.
    pub fn faults(&self) -> u64 {
        self.minor_faults.saturating_add(self.major_faults)
    }

    /// Returns minor and major faults per 10^9 bytes.
    pub fn faults_per_gb(&self) -> f64 {
        self.faults() as f64 / (self.bytes.max(1) as f64 / 1e9)
    }
}

/// Adds a second piece of work. The number of calls becomes unknown if either number is unknown or their kinds differ.
impl AddAssign for Sample {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.user += other.user;
        self.sys += other.sys;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.bytes += other.bytes;
        let both = self.calls.zip(other.calls).filter(|_| self.calls_kind == other.calls_kind);
        self.calls = both.map(|(a, b)| a + b);
        self.far_user += other.far_user;
        self.far_sys += other.far_sys;
        self.reported += other.reported;
        self.stolen_ticks += other.stolen_ticks;
        self.dirtied_pages += other.dirtied_pages;
        self.written_pages += other.written_pages;
        self.pressure += other.pressure;
        self.waited += other.waited;
        self.busy_ticks += other.busy_ticks;
    }
}

/// The cost of a sample that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleMetric {
    /// Wall time.
    #[default]
    Wall,
    Cpu,
}

impl SampleMetric {
    /// Returns the sample's cost in seconds, above 0.
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Wall => sample.wall_seconds(),
            Self::Cpu => sample.cpu_seconds(),
        }
    }
}

/// Takes a sample: start, do the work, stop. The meter's own reads are outside the timed part.
#[derive(Debug)]
pub struct SampleMeter {
    around: Around,
    process: Usage,
    children: Usage,
    began: Instant,
}

impl SampleMeter {
    /// Starts the timed part.
    pub fn start() -> Self {
        let around = Around::now();
        let (process, children) = (Usage::now_process(), Usage::now_children());
        Self { around, process, children, began: Instant::now() }
    }

    /// Ends the timed part, in which `bytes` were moved.
    pub fn stop(self, bytes: u64) -> Sample {
        let wall = self.began.elapsed();
        let own = Usage::now_process().since(&self.process);
        let children = Usage::now_children().since(&self.children);
        let around = Around::now().since(&self.around);
        Sample {
            wall,
            bytes,
            stolen_ticks: around.stolen,
            dirtied_pages: around.dirtied,
            written_pages: around.written,
            pressure: around.pressure,
            waited: around.waited,
            busy_ticks: around.busy,
            ..Sample::default()
        }
        .using(&(own + children))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_once_it_was_waited_for() {
        let meter = SampleMeter::start();
        let status = std::process::Command::new("true").status().unwrap();
        assert!(status.success());
        let sample = meter.stop(7);
        assert!(sample.minor_faults > 0 && sample.wall > Duration::ZERO, "{sample:?}");
        assert_eq!(sample.bytes, 7);
    }

    #[test]
    fn samples_add_up_and_a_far_side_shows_apart_and_in_the_whole() {
        let used = Usage { sys: Duration::from_millis(2), minor_faults: 3, ..Usage::default() };
        let mut one = Sample { calls: Some(5), bytes: 10, ..Sample::default() };
        one.add_far(&used, 2);
        assert_eq!((one.sys, one.far_sys, one.minor_faults), (used.sys, used.sys, 3));
        let mut both = one;
        both += one;
        assert_eq!((both.calls, both.bytes, both.far_sys), (Some(14), 20, used.sys * 2));
        let reads = Sample { calls_kind: CallsKind::ReadWrite, ..one };
        let (mut mixed, mut alike) = (both, reads);
        mixed += reads;
        alike += reads;
        assert_eq!((mixed.calls, alike.calls), (None, Some(14)));
        both += Sample::default();
        assert_eq!(both.calls, None);
    }

    #[test]
    fn a_sample_survives_its_json_and_nonsense_is_refused() {
        let sample = Sample {
            wall: Duration::from_nanos(20_123_457),
            calls: Some(3),
            dirtied_pages: 9,
            ..Sample::default()
        };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
        assert!(!text.contains("minor_faults"), "{text}");
        let bad = text.replace("0.020123457", "-1.0");
        assert!(serde_json::from_str::<Sample>(&bad).is_err());
    }

    #[test]
    fn costs_are_never_zero_because_their_logarithms_are_taken() {
        let nothing = Sample::default();
        assert!(SampleMetric::Wall.of(&nothing) > 0.0 && SampleMetric::Cpu.of(&nothing) > 0.0);
        assert!(nothing.faults_per_gb().abs() < 1e-12);
    }
}
