//! Groups the arms (compared variants) of a result by cell and load, as they were run. A cell consists of arms that are
//! compared with each other.

use thalweg_core::Guarantees;

use crate::study::{
    file::{ArmOrigin, StudyFile},
    result::{ArmResult, Condition, RatioResult, StudyResult},
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::sample::{Sample, SampleMetric};

/// One cell under one load.
#[derive(Clone, Debug)]
pub struct CellResults<'r> {
    pub cell: &'r str,
    pub load: BackgroundLoad,
    /// The conditions of the cell, one for each size, smallest first.
    pub places: Vec<&'r Condition>,
    /// The names of its arms, in the order of the result.
    pub names: Vec<&'r str>,
    pub arms: Vec<&'r ArmResult>,
    pub ratios: Vec<&'r RatioResult>,
}

impl<'r> CellResults<'r> {
    /// Returns all groups of a result, in its order.
    pub fn all(result: &'r StudyResult) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for arm in &result.arms {
            let found = groups.iter().position(|group| group.has(&arm.place));
            let at = found.unwrap_or_else(|| {
                groups.push(Self::empty(&arm.place));
                groups.len() - 1
            });
            groups[at].take(arm);
        }
        for group in &mut groups {
            group.places.sort_by_key(|place| place.bytes);
            group.ratios = result.ratios.iter().filter(|r| group.has(&r.place)).collect();
        }
        groups
    }

    fn empty(place: &'r Condition) -> Self {
        let (cell, load) = (place.cell.as_str(), place.load);
        Self { cell, load, places: vec![], names: vec![], arms: vec![], ratios: vec![] }
    }

    fn has(&self, place: &Condition) -> bool {
        self.cell == place.cell && self.load == place.load
    }

    fn take(&mut self, arm: &'r ArmResult) {
        if !self.places.contains(&&arm.place) {
            self.places.push(&arm.place);
        }
        if !self.names.contains(&arm.name.as_str()) {
            self.names.push(&arm.name);
        }
        self.arms.push(arm);
    }

    /// Returns the results of an arm under one of the conditions.
    pub fn arm(&self, name: &str, place: &Condition) -> Option<&'r ArmResult> {
        self.arms.iter().find(|arm| arm.name == name && arm.place == *place).copied()
    }

    /// Returns the arms that ran under one of the conditions.
    pub fn in_place(&self, place: &Condition) -> impl Iterator<Item = &'r ArmResult> {
        self.arms.iter().copied().filter(move |arm| arm.place == *place)
    }

    /// Returns the ratios under one of the conditions.
    pub fn ratios_in(&self, place: &Condition, metric: SampleMetric) -> Vec<&'r RatioResult> {
        let wanted = |r: &&&RatioResult| r.place == *place && r.metric == metric;
        self.ratios.iter().filter(wanted).copied().collect()
    }

    /// Returns the guarantees of an arm; they are equal under all conditions.
    pub fn promises(&self, name: &str) -> Option<Guarantees> {
        self.arms.iter().find(|arm| arm.name == name)?.promises
    }

    /// Returns the fastest baseline under a condition, which shows the limit of the machine. The null arm does
    /// not count, because it measures the harness.
    pub fn limit(&self, place: &Condition, study: Option<&StudyFile>) -> Option<&'r ArmResult> {
        let baselines = self
            .in_place(place)
            .filter(|arm| arm.origin == ArmOrigin::Baseline && !is_null(&arm.name, study));
        baselines.max_by(|a, b| a.gb_per_s.total_cmp(&b.gb_per_s))
    }
}

fn is_null(name: &str, study: Option<&StudyFile>) -> bool {
    let arm = study.and_then(|study| study.arms.iter().find(|arm| arm.name == name));
    arm.map_or(name == "null", |arm| arm.work == "null")
}

/// Returns the rates of a sample: 10^9 bytes per second, and CPU seconds per 10^9 bytes.
pub fn rates(sample: &Sample) -> Option<[f64; 2]> {
    let gigabytes = sample.bytes as f64 / 1e9;
    (sample.bytes > 0)
        .then(|| [gigabytes / sample.wall_seconds(), sample.cpu_seconds() / gigabytes])
}

pub fn samples(arm: &ArmResult) -> impl Iterator<Item = &Sample> {
    arm.sessions.iter().flat_map(|session| session.samples.iter().map(|entry| &entry.sample))
}
