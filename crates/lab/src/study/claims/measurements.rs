//! Read access to the results of a run for the checks: arms (compared variants), missing arms and probes, by condition.

use std::collections::BTreeMap;
use thalweg_core::profile::Ratio;

use crate::study::{
    costs,
    file::{ClaimCondition, StudyFile},
    result::{ArmResult, ClaimVerdict, Condition, ProbeResult, SessionSamples, StudyResult},
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::{outcome::ratio_over, sample::SampleMetric, stats::widening};

/// The reason why a figure does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// `NotRunnable` if an arm cannot run; `Undecided` if it was not run or has only one session.
    pub verdict: ClaimVerdict,
    pub why: String,
}

impl Absent {
    fn undecided(why: impl Into<String>) -> Self {
        Self { verdict: ClaimVerdict::Undecided, why: why.into() }
    }
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub struct RatioFigure {
    pub ratio: Ratio,
    /// The number of sessions behind the interval.
    pub sessions: usize,
    /// `true` if the interval is on a linear instead of a logarithmic scale (for a correlation).
    pub linear: bool,
    /// The fraction of its samples that other processes disturbed.
    pub disturbed: f64,
}

impl RatioFigure {
    /// Returns the figure with a wider interval, as needed for one of `many` (Bonferroni): all intervals together are
    /// correct with 95 % probability.
    #[must_use]
    pub fn one_of(self, many: usize) -> Self {
        let factor = widening(self.sessions, many);
        let Ratio { ratio, lo, hi } = self.ratio;
        let (lo, hi) = if self.linear {
            ((ratio - (ratio - lo) * factor).max(-1.0), (ratio + (hi - ratio) * factor).min(1.0))
        } else {
            (ratio * (lo / ratio).powf(factor), ratio * (hi / ratio).powf(factor))
        };
        Self { ratio: Ratio { ratio, lo, hi }, ..self }
    }

    /// Returns the figure divided by `divisor`.
    #[must_use]
    pub fn over(self, divisor: f64) -> Self {
        let Ratio { ratio, lo, hi } = self.ratio;
        let ratio = Ratio { ratio: ratio / divisor, lo: lo / divisor, hi: hi / divisor };
        Self { ratio, ..self }
    }
}

/// The results of one study.
pub struct StudyMeasurements<'b> {
    pub study: &'b StudyFile,
    pub result: &'b StudyResult,
}

impl<'b> StudyMeasurements<'b> {
    /// Returns the noise that a difference must exceed.
    pub fn noise(&self) -> f64 {
        self.result.noise
    }

    pub fn seed(&self) -> u64 {
        self.result.protocol.seed
    }

    /// Returns the conditions of a cell (arms that are compared with each other) in the result, including those under
    /// which an arm could not run. If `load` is given, returns only those with this load.
    pub fn conditions(&self, cell: &str, load: Option<BackgroundLoad>) -> Vec<&'b Condition> {
        let mut places: Vec<&Condition> = Vec::new();
        let arms = self.result.arms.iter().map(|arm| &arm.place);
        for place in arms.chain(self.result.missing.iter().map(|missing| &missing.place)) {
            let wanted = place.cell == cell && load.is_none_or(|load| place.load == load);
            if wanted && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Returns the conditions of these cells that the study has and this run left out. The verdict of a shorter run
    /// covers fewer conditions.
    pub fn left_out(&self, cells: &[String], load: Option<BackgroundLoad>) -> Vec<ClaimCondition> {
        let mut all = Vec::new();
        for cell in cells.iter().filter_map(|name| self.study.cell(name)) {
            let loads = cell.loads.iter().filter(|own| load.is_none_or(|load| **own == load));
            for load in loads {
                let at = ClaimCondition { load: *load, ..ClaimCondition::of_cell(&cell.name) };
                all.extend(cell.sizes.iter().map(|size| at.of_size(size)));
            }
        }
        all.retain(|at| self.condition(at).is_err());
        all
    }

    /// Returns the single condition that a check names.
    pub fn condition(&self, at: &ClaimCondition) -> Result<&'b Condition, Absent> {
        let mut places = self.conditions(&at.cell, Some(at.load)).into_iter();
        let wanted = |place: &&Condition| at.size.as_ref().is_none_or(|size| place.size == *size);
        let found = places.find(wanted);
        found.ok_or_else(|| Absent::undecided("this run did not measure the place"))
    }

    /// Returns the results of an arm under a condition. An arm that failed in all its sessions counts as not
    /// runnable.
    pub fn arm(&self, name: &str, place: &Condition) -> Result<&'b ArmResult, Absent> {
        let found = self.result.arms.iter().find(|arm| arm.name == name && arm.place == *place);
        let ran = found.filter(|arm| arm.sessions.iter().any(|session| !session.unchecked));
        ran.ok_or_else(|| {
            let mut missing = self.result.missing.iter();
            match missing.find(|missing| missing.arm == name && missing.place == *place) {
                Some(missing) => Absent {
                    verdict: ClaimVerdict::NotRunnable,
                    why: format!("{name} cannot run here: {}", missing.reason),
                },
                None => Absent::undecided(format!("this run did not measure {name}")),
            }
        })
    }

    /// Returns the log ratios of two arms under a condition, per session; at least two sessions.
    pub fn paired(
        &self,
        [a, b]: &[String; 2],
        place: &Condition,
        metric: SampleMetric,
    ) -> Result<BTreeMap<usize, Vec<f64>>, Absent> {
        let sessions = costs::by_session(self.arm(a, place)?, self.arm(b, place)?, metric);
        if sessions.len() < 2 { Err(too_few(sessions.len())) } else { Ok(sessions) }
    }

    /// Returns the ratio of two arms under a condition.
    pub fn ratio(
        &self,
        arms: &[String; 2],
        place: &Condition,
        metric: SampleMetric,
    ) -> Result<RatioFigure, Absent> {
        let sessions: Vec<Vec<f64>> = self.paired(arms, place, metric)?.into_values().collect();
        self.over(&sessions, self.disturbed(arms, &[place]))
    }

    /// Computes the ratio over all sessions from the log ratios of their rounds.
    pub fn over(&self, sessions: &[Vec<f64>], disturbed: f64) -> Result<RatioFigure, Absent> {
        let ratio = ratio_over(sessions, self.seed()).ok_or_else(|| too_few(sessions.len()))?;
        Ok(RatioFigure { ratio, sessions: sessions.len(), linear: false, disturbed })
    }

    /// Returns the fraction of these arms' samples under these conditions that other processes disturbed.
    pub fn disturbed(&self, arms: &[String], places: &[&Condition]) -> f64 {
        let of_it = |arm: &&ArmResult| arms.contains(&arm.name) && places.contains(&&arm.place);
        let sessions = self.result.arms.iter().filter(of_it).flat_map(|arm| &arm.sessions);
        let count = |(disturbed, all): (usize, usize), session: &SessionSamples| {
            (disturbed + session.disturbed, all + session.samples.len())
        };
        let (disturbed, all) = sessions.fold((0, 0), count);
        disturbed as f64 / all.max(1) as f64
    }

    /// Returns the logarithms of an arm's costs by session.
    pub fn costs(
        &self,
        arm: &str,
        place: &Condition,
        metric: SampleMetric,
    ) -> Result<BTreeMap<usize, f64>, Absent> {
        Ok(costs::costs(self.arm(arm, place)?, metric))
    }

    /// Returns the results of a probe for a check of a claim. They are found by the probe's parameters, or by the
    /// number of the check in older results.
    pub fn probe(
        &self,
        claim: &str,
        number: usize,
        name: &str,
        with: &toml::Table,
    ) -> Option<&'b ProbeResult> {
        let same = |found: &&ProbeResult| match &found.with {
            Some(asked) => asked == with,
            None => found.check == number,
        };
        let of_it = |found: &&ProbeResult| found.claim == claim && found.probe == name;
        self.result.probes.iter().filter(of_it).find(same)
    }
}

/// Returns the error for fewer than two sessions: a single session does not show the variation between sessions.
pub fn too_few(sessions: usize) -> Absent {
    Absent::undecided(match sessions {
        0 => "no session has both variants".to_owned(),
        _ => "one session does not show how sessions differ".to_owned(),
    })
}
