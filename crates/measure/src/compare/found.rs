//! The results of a comparison.

use serde::Serialize;
use thalweg_core::profile::Ratio;

use super::{Compare, Contender};
use crate::{
    arms::command::{Metric, What},
    busy::Busy,
    conditions::Conditions,
    contamination::{Mark, marks},
    log::Log,
    outcome::Cost,
    sample::{self, Sample},
    stats::{Random, Spread, Verdict},
};

#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The metric that decides.
    pub judged_by: String,
    /// A row for every command, in the given order.
    pub rows: Vec<Row>,
    /// The relative difference between two runs of one command, for each figure of a row.
    pub noise: Vec<f64>,
    pub rounds: usize,
    /// How busy the machine was before.
    pub busy: Option<Busy>,
    /// Runs with signs of disturbance; they count nevertheless.
    pub marks: Vec<Mark>,
    pub seed: u64,
    pub conditions: Conditions,
    pub log: Log,
}

/// A command and its results.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    /// The command line; bytes that are not valid UTF-8 become U+FFFD.
    pub command: Vec<String>,
    /// The index of the row it is compared with; `None` for the reference.
    pub against: Option<usize>,
    /// The number of runs that count.
    pub runs: usize,
    /// The figure that decides comes first, then wall time and CPU time if they are different figures.
    pub figures: Vec<Figure>,
    /// The reason why it was not run to the end.
    pub failed: Option<String>,
}

/// One figure of a command.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub metric: String,
    /// The values of the runs: seconds, bytes, or a number that the program prints. `None` without runs.
    pub value: Option<Spread>,
    /// The value relative to that of the reference command, paired by round; `None` for the reference.
    pub ratio: Option<Ratio>,
    /// The ratio of costs, of which less is better.
    #[serde(skip)]
    pub costs: Option<Ratio>,
    /// The verdict on that ratio.
    pub verdict: Option<Verdict>,
}

impl Row {
    /// Returns the figure that decides.
    pub fn judged(&self) -> &Figure {
        self.figures.first().expect("the time on the clock at least")
    }
}

impl Comparison {
    /// Returns the rows that are slower or worse with certainty: the whole interval is beyond this fraction.
    pub fn slower_by(&self, share: f64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| {
            let judged = row.judged();
            let cost = judged.costs.is_some_and(|costs| costs.lo > 1.0 + share);
            cost && judged.verdict == Some(Verdict::Slower)
        })
    }

    pub(super) fn of(compare: &Compare<'_>, busy: Option<Busy>, log: Log) -> Self {
        let mut rows: Vec<Row> =
            compare.contenders.iter().enumerate().map(|(n, c)| Row::of(n, c, &log)).collect();
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

impl Row {
    fn of(number: usize, contender: &Contender, log: &Log) -> Self {
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
enum Kind<'m> {
    Time(sample::Metric),
    Told(&'m Metric),
}

/// Returns the figures to show, the one that decides first.
fn kinds(metric: &Metric) -> Vec<Kind<'_>> {
    use sample::Metric::{Cpu, Wall};
    match metric.what {
        What::Wall => vec![Kind::Time(Wall), Kind::Time(Cpu)],
        What::Cpu => vec![Kind::Time(Cpu), Kind::Time(Wall)],
        What::MaxRss | What::Printed(_) => {
            vec![Kind::Told(metric), Kind::Time(Wall), Kind::Time(Cpu)]
        }
    }
}

impl Kind<'_> {
    /// Adds the figure to every row and returns its noise.
    fn judge(&self, log: &Log, seed: u64, rows: &mut [Row]) -> f64 {
        let against = rows.iter().map(|row| row.against);
        let judged = log.judge(against, self, &mut Random::new(seed));
        for ((arm, row), shown) in rows.iter_mut().enumerate().zip(judged.outcomes) {
            let costs = shown.map(|shown| shown.ratio);
            row.figures.push(Figure {
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
            Self::Time(sample::Metric::Wall) => "wall".to_owned(),
            Self::Time(sample::Metric::Cpu) => "cpu".to_owned(),
            Self::Told(Metric { what: What::MaxRss, .. }) => "maxrss".to_owned(),
            Self::Told(_) => "printed".to_owned(),
        }
    }

    fn value(&self, sample: &Sample) -> f64 {
        match self {
            Self::Time(metric) => metric.of(sample),
            Self::Told(_) => sample.told,
        }
    }
}

impl Cost for Kind<'_> {
    fn cost(&self, sample: &Sample) -> f64 {
        match self {
            Self::Time(metric) => metric.cost(sample),
            Self::Told(metric) => metric.cost(sample),
        }
    }
}
