//! Evaluates `tuned`, the kernel that selects another kernel by size, on published size distributions that tuning did
//! not see. Fresh processes measure batches of random sizes. The score is the regret: the additional time relative to
//! the best kernel.

use std::{fmt::Write, path::Path, time::Duration};
use thalweg_core::{Cancelled, Prefer, profile::LIBC};
use thalweg_kernels::{KERNELS, tuned};

use crate::{
    arms::{CATALOGUE, size_distributions},
    study::{
        costs,
        file::StudyFile,
        result::{ArmResult, StudyResult},
        run::{self, RunError, RunStage},
        settings::{Settings, SizeSelection},
        store::Loaded,
    },
};
use thalweg_measure::sample::SampleMetric;
use thalweg_measure::tune_machine::{
    SurveyPlan, TunedMethod,
    check::HeldOut,
    metric_of,
    regret::{RegretPoint, halves, hindsight},
};

/// The memory over which copies cycle, and the size of a batch as text and in bytes.
const PLACES: [(&str, &str, u64); 2] = [("l1", "64KiB", 64 << 10), ("l2", "256KiB", 256 << 10)];
const SAMPLE: Duration = Duration::from_millis(5);
/// Cost of warm-up and calibration under one condition, as a number of rounds.
const GETTING_READY: usize = 3;
/// Minimum number of rounds. The regret compares the even rounds with the odd ones, so both halves need some.
const LEAST_ROUNDS: usize = 4;

/// Measures `tuned` and every single kernel in processes of `program`, for about a quarter of the plan's time. Returns
/// the score of `tuned` for each distribution and memory.
pub fn held_out(
    plan: &SurveyPlan<'_>,
    program: &Path,
    prefer: Prefer,
) -> Result<Result<Vec<HeldOut>, String>, Cancelled> {
    let text = study();
    let loaded = match StudyFile::parse(&text, &CATALOGUE) {
        Ok(study) => Loaded { study, text, path: "fleet.toml".into() },
        Err(why) => return Ok(Err(why)),
    };
    let settings = settings(plan, &loaded.study);
    let at = std::env::temp_dir();
    let mut stage =
        RunStage { program, at: &at, stop: plan.stop, watch: &mut |_| (), unfinished: None };
    let found = run::run(&[loaded], &settings, &mut stage).into_iter().next();
    match found {
        Some(Ok(result)) => Ok(scored(&result, metric_of(prefer))),
        Some(Err(RunError::Cancelled(stopped))) => Err(stopped),
        Some(Err(error)) => Ok(Err(error.to_string())),
        None => Ok(Ok(Vec::new())),
    }
}

fn settings(plan: &SurveyPlan<'_>, study: &StudyFile) -> Settings {
    let sessions = plan.depth.checks();
    let in_a_round: usize = study.cells.iter().map(|cell| cell.arms.len() + 1).sum();
    let round = SAMPLE * (in_a_round * sessions) as u32;
    let fitting = (plan.budget / 4).as_secs_f64() / round.as_secs_f64();
    let rounds = (fitting as usize).saturating_sub(GETTING_READY);
    Settings {
        preset: "check".to_owned(),
        sessions,
        rounds: rounds.clamp(LEAST_ROUNDS, plan.depth.preset().rounds),
        pause: Duration::ZERO,
        sample: SAMPLE,
        seed: plan.seed,
        pinned: Vec::new(),
        only: Vec::new(),
        sizes: SizeSelection::All,
        command: String::new(),
    }
}

fn ways() -> impl Iterator<Item = &'static str> {
    let others = KERNELS.iter().filter(|row| row.name != LIBC && (row.is_available)());
    std::iter::once(LIBC).chain(others.map(|row| row.name))
}

/// Returns a study with one cell (arms that are compared with each other) for each memcpy distribution and residency.
/// The arms (compared variants) are the kernels.
fn study() -> String {
    let mut text = "schema = 1\nid = \"fleet\"\ntitle = \"fleet\"\nsummary = \"fleet\"\n\
                    [source]\ntitle = \"google/fleetbench\"\n"
        .to_owned();
    for name in size_distributions().filter(|name| name.starts_with("memcpy-")) {
        for (residency, batch, _) in PLACES {
            let cell = format!("{name} {residency}");
            let arms: Vec<String> = ways().map(|way| format!("\"{way} {cell}\"")).collect();
            let _ = write!(
                text,
                "[[cell]]\nname = \"{cell}\"\nsizes = [\"{batch}\"]\narms = [{}]\n",
                arms.join(", ")
            );
            for way in ways() {
                let _ = write!(
                    text,
                    "[[arm]]\nname = \"{way} {cell}\"\nwork = \"memory\"\n\
                     with = {{ kernel = \"{way}\", sizes = \"{name}\", residency = \"{residency}\" }}\n"
                );
            }
        }
    }
    text
}

fn scored(result: &StudyResult, metric: SampleMetric) -> Result<Vec<HeldOut>, String> {
    let mut all = Vec::new();
    for distribution in size_distributions().filter(|name| name.starts_with("memcpy-")) {
        for (residency, _, batch) in PLACES {
            let cell = format!("{distribution} {residency}");
            let arms: Vec<&ArmResult> =
                result.arms.iter().filter(|arm| arm.place.cell == cell).collect();
            let Some(point) = point(&arms, metric) else { continue };
            all.push(HeldOut {
                distribution: distribution.to_owned(),
                residency: residency.to_owned(),
                point: RegretPoint { size: batch, ..point },
            });
        }
    }
    let why = result.missing.iter().find(|missing| missing.arm.starts_with(tuned::NAME));
    match (all.is_empty(), why) {
        (true, Some(missing)) => Err(missing.reason.clone()),
        (true, None) => Err("no round measured both libc and `tuned`".to_owned()),
        (false, _) => Ok(all),
    }
}

fn point(arms: &[&ArmResult], metric: SampleMetric) -> Option<RegretPoint> {
    let of = |name: &str| arms.iter().find(|arm| way_of(arm) == name);
    let libc = of(LIBC)?;
    let of = |arm: &ArmResult| {
        let sessions: Vec<_> = costs::of_both(arm, libc, metric).into_values().collect();
        halves(&sessions)
    };
    let costs = arms.iter().filter_map(|arm| Some((TunedMethod::plain(way_of(arm)), of(arm)?)));
    hindsight(&costs.collect::<Vec<_>>(), &TunedMethod::plain(tuned::NAME))
}

/// Returns the kernel of an arm: the word before the name of its cell.
fn way_of(arm: &ArmResult) -> &str {
    arm.name.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::tune_machine::{Depth, loads};

    #[test]
    fn the_study_is_one_and_its_rounds_fit_the_time() {
        let study = StudyFile::parse(&study(), &CATALOGUE).unwrap();
        assert_eq!(study.cells.len(), 5 * PLACES.len());
        let mut plan = SurveyPlan {
            pairs: Vec::new(),
            depth: Depth::Quick,
            budget: Duration::from_secs(1),
            loads: loads().to_vec(),
            seed: 1,
            stop: &|| Ok(()),
        };
        assert_eq!(settings(&plan, &study).rounds, LEAST_ROUNDS);
        plan.budget = Duration::from_secs(10_000);
        assert_eq!(settings(&plan, &study).rounds, Depth::Quick.preset().rounds);
    }
}
