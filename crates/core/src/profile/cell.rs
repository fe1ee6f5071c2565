//! One measured point, and the line drawn between points.

use serde::{Deserialize, Serialize};

use super::{LEAST_NOISE, Profile};
use crate::{EndFacts, Facts, MECHANISMS, Prefer, Tuning};

/// Time of a mechanism divided by the time of `read-write` at its default buffer, in one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the paired ratios; below 1 is faster than `read-write`.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// What else the machine was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing of ours.
    #[default]
    Idle,
    /// One busy thread on every core but one.
    Loaded,
}

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Key of the source: `file:ext4`, `pipe`.
    pub source: String,
    /// Key of the sink.
    pub sink: String,
    /// Mount options of both file systems, empty where there is none.
    #[serde(default)]
    pub options: [String; 2],
    /// The mechanism.
    pub mechanism: String,
    /// Its tuning.
    #[serde(default)]
    pub tuning: Tuning,
    /// Bytes per transfer.
    pub size: u64,
    /// What else was going on.
    #[serde(default)]
    pub load: Load,
    /// Time on the clock.
    pub wall: Ratio,
    /// Processor time.
    pub cpu: Ratio,
    /// The noise floor of the run, from its A/A pair, as a fraction.
    pub noise: f64,
    /// Nanoseconds per byte on the clock: an estimate for people; choices use the ratio alone.
    pub ns_per_byte: f64,
    /// Sessions (fresh processes) behind the numbers.
    pub sessions: u32,
    /// Rounds in each session.
    pub rounds: u32,
    /// When, RFC 3339.
    pub at: String,
}

/// What the profile says about a mechanism for one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The tuning that was best.
    pub tuning: Tuning,
    /// Clock ratio at the job's size, between the measured sizes by log-log interpolation.
    pub wall: Ratio,
    /// Processor ratio.
    pub cpu: Ratio,
    /// The larger noise floor of the cells used, at least [`LEAST_NOISE`].
    pub noise: f64,
    /// Expected nanoseconds per byte.
    pub ns_per_byte: f64,
    /// Date of the newest cell used.
    pub at: String,
    /// Fewest sessions among the cells used.
    pub sessions: u32,
}

impl Evidence {
    /// The ratio that counts for `prefer`.
    pub fn score(&self, prefer: Prefer) -> f64 {
        match prefer {
            Prefer::Cpu => self.cpu.ratio,
            Prefer::Wall | Prefer::Memory => self.wall.ratio,
        }
    }
}

impl Ratio {
    /// Exactly 1: `read-write` against itself.
    pub const ONE: Self = Self { ratio: 1.0, lo: 1.0, hi: 1.0 };

    fn check(&self) -> Result<(), String> {
        let sound = |x: f64| x.is_finite() && x > 0.0;
        if sound(self.ratio) && sound(self.lo) && sound(self.hi) {
            Ok(())
        } else {
            Err(format!("ratio {} [{}, {}] is not one", self.ratio, self.lo, self.hi))
        }
    }

    fn between(a: &Self, b: &Self, share: f64) -> Self {
        let mix = |x: f64, y: f64| (x.ln() * (1.0 - share) + y.ln() * share).exp();
        Self { ratio: mix(a.ratio, b.ratio), lo: mix(a.lo, b.lo), hi: mix(a.hi, b.hi) }
    }
}

impl Cell {
    pub(super) fn check(&self) -> Result<(), String> {
        self.wall.check()?;
        self.cpu.check()?;
        if self.size == 0 {
            return Err("size 0".to_owned());
        }
        if !(0.0..=10.0).contains(&self.noise) {
            return Err(format!("noise {} is not a fraction", self.noise));
        }
        if !(self.ns_per_byte.is_finite() && self.ns_per_byte > 0.0) {
            return Err(format!("{} ns per byte", self.ns_per_byte));
        }
        self.check_tuning()
    }

    /// A value goes into buffer sizes unseen, so it must be one a sweep may have tried. Mechanisms
    /// and knobs that are not known are never used.
    fn check_tuning(&self) -> Result<(), String> {
        let mut infos = MECHANISMS.iter().map(|m| m.info());
        let Some(info) = infos.find(|info| info.name == self.mechanism) else { return Ok(()) };
        for (name, value) in self.tuning.iter() {
            let Some(knob) = info.knobs.iter().find(|knob| knob.name == name) else { continue };
            let (least, most) = (knob.values.iter().min(), knob.values.iter().max());
            if least.is_some_and(|least| value < *least) || most.is_some_and(|most| value > *most) {
                return Err(format!("{name}={value} was never tried for {}", info.name));
            }
        }
        Ok(())
    }

    pub(super) fn order(&self) -> (&str, &str, &str, &Tuning, u64, Load) {
        (&self.source, &self.sink, &self.mechanism, &self.tuning, self.size, self.load)
    }

    pub(super) fn same_conditions(&self, other: &Self) -> bool {
        self.order() == other.order() && self.options == other.options
    }

    fn speaks_of(&self, facts: &Facts) -> bool {
        let matches = |key: &str, options: &str, end: &EndFacts| {
            end.key() == key && end.fs.as_ref().is_none_or(|fs| fs.options == options)
        };
        self.load == Load::Idle
            && matches(&self.source, &self.options[0], &facts.source)
            && matches(&self.sink, &self.options[1], &facts.sink)
    }
}

impl Profile {
    /// What is known about `mechanism` for this job: its best tuning and its ratios at this size.
    /// `None` if it was never measured on such ends.
    pub fn evidence(&self, facts: &Facts, mechanism: &str, prefer: Prefer) -> Option<Evidence> {
        let mut cells: Vec<&Cell> = self.cells.iter().collect();
        cells.retain(|cell| cell.mechanism == mechanism && cell.speaks_of(facts));
        cells.sort_by(|a, b| (&a.tuning, a.size).cmp(&(&b.tuning, b.size)));
        let by_tuning = cells.chunk_by(|a, b| a.tuning == b.tuning);
        let evidence = by_tuning.map(|line| interpolate(line, facts.len));
        evidence.min_by(|a, b| a.score(prefer).total_cmp(&b.score(prefer)))
    }
}

/// The point at `size` on the line through `cells` (one tuning, rising sizes, at least one).
fn interpolate(cells: &[&Cell], size: Option<u64>) -> Evidence {
    // A stream of unknown length is taken as long.
    let size = size.unwrap_or(u64::MAX).max(1);
    let above = cells.partition_point(|cell| cell.size < size);
    let (a, b) = (cells[above.saturating_sub(1)], cells[above.min(cells.len() - 1)]);
    let ln = |x: u64| (x as f64).ln();
    let share =
        if a.size == b.size { 0.0 } else { (ln(size) - ln(a.size)) / (ln(b.size) - ln(a.size)) };
    let ns = (a.ns_per_byte.ln() * (1.0 - share) + b.ns_per_byte.ln() * share).exp();
    Evidence {
        tuning: a.tuning.clone(),
        wall: Ratio::between(&a.wall, &b.wall, share),
        cpu: Ratio::between(&a.cpu, &b.cpu, share),
        noise: a.noise.max(b.noise).max(LEAST_NOISE),
        ns_per_byte: ns,
        at: a.at.clone().max(b.at.clone()),
        sessions: a.sessions.min(b.sessions),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Guarantees, Kind};

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
            wall: ratio,
            cpu: ratio,
            noise: 0.01,
            ns_per_byte: 0.5,
            sessions: 3,
            rounds: 10,
            at: "2026-11-21T00:00:00Z".into(),
        }
    }

    fn facts(len: Option<u64>) -> Facts {
        let pipe = EndFacts { kind: Kind::Pipe, addressed: false, ..EndFacts::MEMORY };
        Facts { source: pipe.clone(), sink: pipe, len, needs: Guarantees::default() }
    }

    fn ratio_at(profile: &Profile, len: Option<u64>) -> f64 {
        let evidence = profile.evidence(&facts(len), "splice", Prefer::Wall);
        evidence.expect("measured").wall.ratio
    }

    #[test]
    fn between_two_sizes_the_line_is_straight_in_logarithms() {
        let mut profile = Profile::new();
        profile.merge(vec![cell("splice", 1 << 10, 4.0), cell("splice", 1 << 20, 0.25)]);
        assert!((ratio_at(&profile, Some(1 << 15)) - 1.0).abs() < 1e-9);
        assert!((ratio_at(&profile, Some(1)) - 4.0).abs() < 1e-9);
        assert!((ratio_at(&profile, Some(1 << 40)) - 0.25).abs() < 1e-9);
        assert!((ratio_at(&profile, None) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_better_tuning_is_taken_and_other_ends_are_not() {
        let mut profile = Profile::new();
        let mut tuned = cell("splice", 1 << 10, 0.5);
        tuned.tuning = Tuning::of("pipe", 4096);
        let mut elsewhere = cell("splice", 1 << 10, 0.1);
        elsewhere.source = "socket".into();
        profile.merge(vec![cell("splice", 1 << 10, 0.9), tuned.clone(), elsewhere]);
        let evidence = profile.evidence(&facts(Some(1 << 10)), "splice", Prefer::Wall);
        assert_eq!(evidence.unwrap().tuning, tuned.tuning);
        assert!(profile.evidence(&facts(None), "tee", Prefer::Wall).is_none());
    }
}
