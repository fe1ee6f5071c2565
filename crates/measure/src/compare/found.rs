//! The results of a comparison.

use serde::Serialize;
use thalweg_core::profile::Ratio;

use super::{CompareJob, ComparedCommand};
use crate::{
    arms::command::{MeasuredValue, RunMetric},
    busy::BusyProcessors,
    conditions::Conditions,
    contamination::{SampleMark, marks},
    log::SampleLog,
    outcome::SampleCost,
    sample::{self, Sample},
    stats::{Random, RatioVerdict, Spread},
};

#[derive(Debug, Serialize)]
pub struct CompareResult {
    /// The metric that decides.
    pub judged_by: String,
    /// A row for every command, in the given order.
    pub rows: Vec<CompareRow>,
    /// The relative difference between two runs of one command, for each figure of a row.
    pub noise: Vec<f64>,
    pub rounds: usize,
    /// How busy other processes kept the machine before the first run.
    pub busy: Option<BusyProcessors>,
    /// The disturbed runs. They count like the others.
    pub marks: Vec<SampleMark>,
    pub seed: u64,
    pub conditions: Conditions,
    pub log: SampleLog,
}

/// A command and its results.
#[derive(Clone, Debug, Serialize)]
pub struct CompareRow {
    pub name: String,
    /// The command line; bytes that are not valid UTF-8 become U+FFFD.
    pub command: Vec<String>,
    /// The index of the row it is compared with; `None` for the reference.
    pub against: Option<usize>,
    /// The number of runs that count.
    pub runs: usize,
    /// The figure that decides comes first, then wall time and CPU time if they are different figures.
    pub figures: Vec<ComparedFigure>,
    /// The reason why the command did not take part in all rounds.
    pub failed: Option<String>,
}

/// One figure of a command.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedFigure {
    pub metric: String,
    /// The values of the runs: seconds, bytes, or a number that the program prints. `None` without runs.
    pub value: Option<Spread>,
    /// The value relative to that of the reference command, paired by round; `None` for the reference.
    pub ratio: Option<Ratio>,
    /// `ratio` as a ratio of costs, so that a smaller value is always better.
    #[serde(skip)]
    pub costs: Option<Ratio>,
    /// The verdict on `costs`.
    pub verdict: Option<RatioVerdict>,
}

impl CompareRow {
    /// Returns the figure that decides.
    pub fn judged(&self) -> &ComparedFigure {
        self.figures.first().expect("the time on the clock at least")
    }
}

impl CompareResult {
    /// Returns the rows that are slower or worse with certainty: the whole interval is beyond this fraction.
    pub fn slower_by(&self, share: f64) -> impl Iterator<Item = &CompareRow> {
        self.rows.iter().filter(move |row| {
            let judged = row.judged();
            let cost = judged.costs.is_some_and(|costs| costs.lo > 1.0 + share);
            cost && judged.verdict == Some(RatioVerdict::Slower)
        })
    }

    pub(super) fn of(
        compare: &CompareJob<'_>,
        busy: Option<BusyProcessors>,
        log: SampleLog,
    ) -> Self {
        let mut rows: Vec<CompareRow> = compare
            .contenders
            .iter()
            .enumerate()
            .map(|(n, c)| CompareRow::of(n, c, &log))
            .collect();
        let kinds = kinds(compare.metric);
        let noise = kinds.iter().map(|kind| kind.judge(&log, compare.seed, &mut rows)).collect();
        Self {
            judged_by: compare.metric.to_string(),
            noise,
            rounds: log.rounds.len(),
            busy,
            marks: marks(&log, &[]),
            seed: compare.seed,
            conditions: Conditions::now(&[]),
            rows,
            log,
        }
    }
}

impl CompareRow {
    fn of(number: usize, contender: &ComparedCommand, log: &SampleLog) -> Self {
        Self {
            name: contender.name.clone(),
            command: contender.words.iter().map(|word| word.display().to_string()).collect(),
            against: contender.against,
            runs: log.samples(number).count(),
            figures: Vec::new(),
            failed: log.arms[number].dropped.clone(),
        }
    }
}

/// A figure of a sample, with the direction that counts as better.
enum FigureKind<'m> {
    Time(sample::SampleMetric),
    Told(&'m RunMetric),
}

/// Returns the figures to show. The figure that decides comes first.
fn kinds(metric: &RunMetric) -> Vec<FigureKind<'_>> {
    use sample::SampleMetric::{Cpu, Wall};
    match metric.what {
        MeasuredValue::Wall => vec![FigureKind::Time(Wall), FigureKind::Time(Cpu)],
        MeasuredValue::Cpu => vec![FigureKind::Time(Cpu), FigureKind::Time(Wall)],
        MeasuredValue::MaxRss | MeasuredValue::Printed(_) => {
            vec![FigureKind::Told(metric), FigureKind::Time(Wall), FigureKind::Time(Cpu)]
        }
    }
}

impl FigureKind<'_> {
    /// Adds the figure to every row and returns its noise.
    fn judge(&self, log: &SampleLog, seed: u64, rows: &mut [CompareRow]) -> f64 {
        let against = rows.iter().map(|row| row.against);
        let judged = log.judge(against, self, &mut Random::new(seed));
        for ((arm, row), shown) in rows.iter_mut().enumerate().zip(judged.outcomes) {
            let costs = shown.map(|shown| shown.ratio);
            row.figures.push(ComparedFigure {
                metric: self.name(),
                value: log.spread(arm, |sample| self.value(sample)),
                ratio: costs.map(|costs| match self {
                    Self::Time(_) => costs,
                    Self::Told(metric) => metric.ratio_of_values(costs),
                }),
                costs,
                verdict: shown.map(|shown| shown.word()),
            });
        }
        judged.noise
    }

    fn name(&self) -> String {
        match self {
            Self::Time(sample::SampleMetric::Wall) => "wall".to_owned(),
            Self::Time(sample::SampleMetric::Cpu) => "cpu".to_owned(),
            Self::Told(RunMetric { what: MeasuredValue::MaxRss, .. }) => "maxrss".to_owned(),
            Self::Told(_) => "printed".to_owned(),
        }
    }

    fn value(&self, sample: &Sample) -> f64 {
        match self {
            Self::Time(metric) => metric.of(sample),
            Self::Told(_) => sample.reported,
        }
    }
}

impl SampleCost for FigureKind<'_> {
    fn cost(&self, sample: &Sample) -> f64 {
        match self {
            Self::Time(metric) => metric.cost(sample),
            Self::Told(metric) => metric.cost(sample),
        }
    }
}
