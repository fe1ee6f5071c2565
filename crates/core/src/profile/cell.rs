//! A measurement of a profile.

use serde::{Deserialize, Serialize};

use super::{COLD, FILL, LARGE_READS, REPEATED};
use crate::{EndFacts, Facts, Kind, MECHANISMS, Tuning};

/// The time of a mechanism divided by the time of the reference in the same run. The reference is `read-write` with its
/// default buffer; from memory to memory, it is the C library's copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the paired ratios; below 1 is faster than the reference.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub lo: f64,
    /// Upper end of the 95 % interval.
    pub hi: f64,
}

/// Load of the machine during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// No load from the measuring program.
    #[default]
    Idle,
    /// A busy process on every core but one.
    Loaded,
}

impl Load {
    /// Returns the name used in profiles and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loaded => "loaded",
        }
    }
}

/// State of a sink file before the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SinkState {
    /// A new file. Also used for every sink that is not a file.
    #[default]
    Fresh,
    /// An existing file in the page cache, which was overwritten.
    Resident,
}

impl SinkState {
    /// Returns the name used in profiles and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Resident => "resident",
        }
    }
}

/// A measurement of one mechanism, with its conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Key of the source: `file:ext4`, `pipe`, `socket:inet`.
    pub source: String,
    /// Key of the sink.
    pub sink: String,
    /// Mount options of both file systems; empty for an endpoint without a file system.
    #[serde(default)]
    pub options: [String; 2],
    /// The name of the mechanism. From memory to memory, it names the copy kernel; between processes, the variant of the
    /// channel.
    pub mechanism: String,
    /// The tuning of the mechanism.
    #[serde(default)]
    pub tuning: Tuning,
    /// Bytes per transfer.
    pub size: u64,
    /// The load of the machine.
    #[serde(default)]
    pub load: Load,
    /// The state of the sink before the transfer.
    #[serde(default)]
    pub sink_state: SinkState,
    /// Ratio of wall time.
    pub wall: Ratio,
    /// Ratio of CPU time.
    pub cpu: Ratio,
    /// The noise floor of the run, as a fraction: the difference between two measurements of one variant.
    pub noise: f64,
    /// Nanoseconds of wall time per byte, for display and to predict rates. Rankings use only the ratio.
    pub ns_per_byte: f64,
    /// Private memory, in bytes, that a transfer held at its end; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Sessions (fresh processes) behind the numbers.
    pub sessions: u32,
    /// Rounds in all sessions.
    pub rounds: u32,
    /// The date, RFC 3339.
    pub at: String,
    /// `true` if a copy recorded the cell because another cell had predicted too high a rate. The cell applies only to
    /// similar sizes, until a survey measures these endpoints.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
}

impl Ratio {
    /// Exactly 1: the reference against itself.
    pub const ONE: Self = Self { ratio: 1.0, lo: 1.0, hi: 1.0 };

    fn check(&self) -> Result<(), String> {
        let sound = |x: f64| x.is_finite() && x > 0.0;
        if sound(self.ratio) && sound(self.lo) && sound(self.hi) {
            Ok(())
        } else {
            Err(format!("invalid ratio {} [{}, {}]", self.ratio, self.lo, self.hi))
        }
    }

    pub(super) fn between(a: &Self, b: &Self, share: f64) -> Self {
        // Between equal values, rounding would give slightly different values at different sizes, and ties would change.
        let mix = |x: f64, y: f64| {
            let is_equal = x.to_bits() == y.to_bits();
            if is_equal { x } else { (x.ln() * (1.0 - share) + y.ln() * share).exp() }
        };
        Self { ratio: mix(a.ratio, b.ratio), lo: mix(a.lo, b.lo), hi: mix(a.hi, b.hi) }
    }
}

impl Cell {
    /// Returns `true` for a copy or a fill in memory.
    pub(super) fn is_of_memory(&self) -> bool {
        let memory = Kind::Memory.name();
        [memory, FILL].contains(&&*self.source) && [memory, COLD, REPEATED].contains(&&*self.sink)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.wall.check()?;
        self.cpu.check()?;
        if self.size == 0 {
            return Err("the size is 0".to_owned());
        }
        if !(0.0..=10.0).contains(&self.noise) {
            return Err(format!("noise {} is not between 0 and 10", self.noise));
        }
        if !(self.ns_per_byte.is_finite() && self.ns_per_byte > 0.0) {
            return Err(format!("invalid time: {} ns per byte", self.ns_per_byte));
        }
        self.check_tuning()
    }

    /// Checks that each knob value is within the range of the knob's listed values, because mechanisms allocate buffers
    /// of this size without a check. Unknown mechanisms and knobs are never used.
    fn check_tuning(&self) -> Result<(), String> {
        let mut infos = MECHANISMS.iter().map(|m| m.info());
        let Some(info) = infos.find(|info| info.name == self.mechanism) else { return Ok(()) };
        for (name, value) in self.tuning.iter() {
            let Some(knob) = info.knobs.iter().find(|knob| knob.name == name) else { continue };
            let (least, most) = (knob.values.iter().min(), knob.values.iter().max());
            if least.is_some_and(|least| value < *least) || most.is_some_and(|most| value > *most) {
                return Err(format!(
                    "{name}={value} is outside the tested values of {}",
                    info.name
                ));
            }
        }
        Ok(())
    }

    pub(super) fn order(&self) -> (&str, &str, &str, &Tuning, u64, (Load, SinkState)) {
        let conditions = (self.load, self.sink_state);
        (&self.source, &self.sink, &self.mechanism, &self.tuning, self.size, conditions)
    }

    pub(super) fn same_conditions(&self, other: &Self) -> bool {
        self.order() == other.order() && self.options == other.options
    }

    /// Returns `true` if both cells were measured between the same endpoints and under the same conditions. Mechanism
    /// and size may differ.
    pub(super) fn same_survey(&self, other: &Self) -> bool {
        let conditions = |cell: &Self| (cell.load, cell.sink_state);
        (&self.source, self.sink()) == (&other.source, other.sink())
            && self.options == other.options
            && conditions(self) == conditions(other)
    }

    /// Returns the key of the sink, without the suffix for the reader at its other end.
    pub fn sink(&self) -> &str {
        self.sink.strip_suffix(LARGE_READS).unwrap_or(&self.sink)
    }

    /// Returns `true` if the cell applies to transfers of this size. A provisional cell applies only to similar sizes,
    /// because one copy observed it.
    pub(super) fn reaches(&self, size: Option<u64>) -> bool {
        const NEAR: u64 = 2;
        let is_near = |size: u64| {
            size <= self.size.saturating_mul(NEAR) && self.size <= size.saturating_mul(NEAR)
        };
        !self.provisional || size.is_some_and(is_near)
    }

    /// Returns the sizes at which the evidence of this cell changes or ends.
    pub(crate) fn corners(&self) -> impl Iterator<Item = u64> {
        let near = [self.size.div_ceil(2) - 1, self.size.saturating_mul(2)];
        let near = self.provisional.then_some(near);
        near.into_iter().flatten().chain([self.size])
    }

    /// Returns `true` if the cell was measured between endpoints of these kinds.
    pub(crate) fn speaks_of(&self, facts: &Facts) -> bool {
        let matches = |key: &str, options: &str, end: &EndFacts| {
            end.key() == key && end.fs.as_ref().is_none_or(|fs| fs.options() == options)
        };
        matches(&self.source, &self.options[0], &facts.source)
            && matches(self.sink(), &self.options[1], &facts.sink)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn cell(mechanism: &str, size: u64, ratio: f64) -> Cell {
        let ratio = Ratio { ratio, lo: ratio * 0.9, hi: ratio * 1.1 };
        Cell {
            source: "pipe".into(),
            sink: "pipe".into(),
            options: Default::default(),
            mechanism: mechanism.into(),
            tuning: Tuning::default(),
            size,
            load: Load::Idle,
            sink_state: SinkState::Fresh,
            wall: ratio,
            cpu: ratio,
            noise: 0.01,
            ns_per_byte: 0.5,
            memory: None,
            sessions: 3,
            rounds: 10,
            at: "2026-11-21T00:00:00Z".into(),
            provisional: false,
        }
    }
}
