//! `tune --check`: additional sessions at sizes that are not in the profile, evaluated by regret.

use serde::Serialize;
use thalweg_core::{Cancelled, Prefer, Profile, profile::Cell};

use super::{
    OtherWork, SurveyPlan, SurveyProgress, SurveyRun,
    grid::{Depth, between},
    job::TunedMethod,
    pair::EndPair,
    regret::{Regret, RegretPoint, regrets},
    runner::Runner,
};
use crate::stats::Random;

#[derive(Clone, Debug)]
pub struct SurveyCheck {
    /// The regret of each pair, load and guarantee.
    pub regrets: Vec<Regret>,
    /// The reasons why sessions failed.
    pub troubles: Vec<String>,
    /// Total wall time.
    pub seconds: f64,
    /// The sessions that other processes disturbed.
    pub met: OtherWork,
}

/// The regret on one published distribution of sizes; `thalweg-lab` measures it.
#[derive(Clone, Debug, Serialize)]
pub struct HeldOut {
    /// The name, as in studies/data/fleet-sizes.txt.
    pub distribution: String,
    /// The memory over which the copies cycle.
    pub residency: String,
    /// The regret. Its `size` is the number of bytes of a batch.
    #[serde(flatten)]
    pub point: RegretPoint,
}

impl Depth {
    /// Number of sessions of a check. A few are enough: the regret compares halves of the rounds, and needs no interval
    /// over sessions.
    pub fn checks(self) -> usize {
        match self {
            Self::Quick => 2,
            Self::Standard => 3,
        }
    }
}

/// Returns an error if these ends cannot be created on this machine.
pub fn are_possible(ends: &EndPair) -> Result<(), String> {
    ends.contest().keys(ends).map(drop)
}

/// Measures at sizes between those of the grid, and evaluates the planner's choices with `profile`.
pub fn check(
    plan: &SurveyPlan<'_>,
    profile: &Profile,
    prefer: Prefer,
    runner: &mut dyn Runner,
    report: &mut dyn FnMut(&SurveyProgress<'_>),
) -> Result<SurveyCheck, Cancelled> {
    let mut draw = Random::new(plan.seed);
    let mut run = SurveyRun::new(plan, runner, report);
    let troubles = &mut run.troubles;
    let planned = plan.surveys(|ends| {
        let sizes = between(&plan.sizes(ends), &mut || draw.unit());
        (sizes, known_tunings(profile, ends, troubles))
    });
    let sessions = plan.depth.checks();
    run.of = planned.len() * sessions;
    let (surveys, met) = run.sessions(planned, sessions)?;
    let regrets = surveys.iter().flat_map(|survey| regrets(survey, profile, prefer));
    let (regrets, seconds) = (regrets.collect(), run.seconds());
    Ok(SurveyCheck { regrets, seconds, troubles: run.troubles, met })
}

/// Returns the tunings that the planner may choose between these ends. They must take part in the check.
fn known_tunings(
    profile: &Profile,
    ends: &EndPair,
    troubles: &mut Vec<String>,
) -> Vec<TunedMethod> {
    let known = ends.contest().known(profile, ends).unwrap_or_else(|trouble| {
        troubles.push(trouble);
        Vec::new()
    });
    let tuned = known.into_iter().filter(|cell| !cell.tuning.is_default());
    let way =
        |cell: &Cell| TunedMethod { name: cell.mechanism.clone(), tuning: cell.tuning.clone() };
    let mut ways: Vec<TunedMethod> = tuned.map(way).collect();
    ways.sort();
    ways.dedup();
    ways
}
