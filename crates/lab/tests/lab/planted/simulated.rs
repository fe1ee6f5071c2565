//! Simulated sessions: a formula gives the costs, so that the true ratio is known.

use std::{f64::consts::TAU, time::Duration};
use thalweg_core::Guarantees;
use thalweg_lab::study::{
    conditions::conditions_of,
    evaluation::result_of,
    file::StudyFile,
    messages::{ArmRun, ConditionLog, SessionLog},
    result::{Condition, Protocol, RoundSample, SessionSamples, StudyResult},
    settings::Settings,
};
use thalweg_measure::preset::Preset;
use thalweg_measure::{sample::Sample, stats::Random};

/// The disturbances of a simulated machine, which affect every sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct World {
    /// Scatter of the samples.
    pub sigma: f64,
    /// Scatter of each arm's level between sessions.
    pub sessions: f64,
    /// Autocorrelation: the share of the previous sample's deviation in that of a sample.
    pub memory: f64,
    /// Relative growth of all costs during a session.
    pub drift: f64,
    /// Share of samples that take eight times as long.
    pub outliers: f64,
}

/// A function that returns the undisturbed time of one operation, in seconds, for an arm and a
/// condition.
pub type Cost<'c> = dyn Fn(&str, &Condition) -> f64 + 'c;

/// Simulates a run of a study in this world.
pub fn run(
    study: &StudyFile,
    (sessions, rounds): (usize, usize),
    (world, seed): (World, u64),
    cost: &Cost<'_>,
) -> StudyResult {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let settings = Settings { ..Settings::of(Preset::STANDARD, seed) };
    let places = conditions_of(study, &settings).expect("places");
    let logs = (0..sessions).map(|session| SessionLog {
        session,
        null_seconds: 1e-7,
        places: places
            .iter()
            .map(|place| one_place(study, place, (session, rounds), (world, &mut random), cost))
            .collect(),
        probes: Vec::new(),
    });
    let protocol = Protocol {
        preset: "simulated".to_owned(),
        sessions,
        rounds,
        pause_seconds: 0.0,
        sample_seconds: 0.02,
        seed,
        pinned: Vec::new(),
        command: String::new(),
        began: "2026-11-22T00:00:00Z".to_owned(),
        took_seconds: 1.0,
        extensions: Vec::new(),
    };
    result_of(study, logs.collect(), protocol, serde_json::json!({ "simulated": true }))
}

fn one_place(
    study: &StudyFile,
    place: &Condition,
    (session, rounds): (usize, usize),
    (world, random): (World, &mut Random),
    cost: &Cost<'_>,
) -> ConditionLog {
    let names = &study.cell(&place.cell).expect("the cell").arms;
    let mut runs: Vec<ArmRun> = names
        .iter()
        .map(|name| ArmRun {
            name: name.clone(),
            promises: Some(Guarantees::COPIED),
            // The number of operations per sample is random, because the cost of one operation must
            // not depend on it.
            taken: SessionSamples {
                session,
                repeats: 1 + random.below(5) as u32,
                ..SessionSamples::default()
            },
            ..ArmRun::default()
        })
        .collect();
    let levels: Vec<f64> = names.iter().map(|_| world.sessions * normal(random)).collect();
    let mut last = 0.0;
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.push(random.below(names.len()));
        random.shuffle(&mut order);
        for arm in order {
            last =
                last * world.memory + (1.0 - world.memory * world.memory).sqrt() * normal(random);
            let outlier = if random.unit() < world.outliers { 8.0 } else { 1.0 };
            let drift = 1.0 + world.drift * round as f64 / rounds as f64;
            let level = cost(&names[arm], place) * levels[arm].exp();
            let seconds = level * (world.sigma * last).exp() * outlier * drift;
            let wall = Duration::from_secs_f64(seconds * f64::from(runs[arm].taken.repeats));
            let sample = Sample { wall, user: wall, bytes: place.bytes, ..Sample::default() };
            runs[arm].taken.samples.push(RoundSample { round, sample });
        }
    }
    ConditionLog { place: place.clone(), arms: runs, missing: Vec::new(), seconds: 0.0 }
}

fn normal(random: &mut Random) -> f64 {
    let (u, v) = (random.unit().max(1e-12), random.unit());
    (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
}
