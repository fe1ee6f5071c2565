//! `tune --check`: later sessions on sizes that the profile has not seen, to be scored by regret.

mod fleet;

pub use fleet::{Held, held_out};

use thalweg_core::{Cancelled, Prefer, Profile, profile::Cell};

use super::{
    Met, Plan, Progress, Run,
    grid::{Depth, between},
    job::Way,
    pair::Ends,
    regret::{Regret, regrets},
    runner::Runner,
};
use crate::measure::stats::Random;

#[derive(Clone, Debug)]
pub struct Checked {
    /// A regret for each pair, load and promise.
    pub regrets: Vec<Regret>,
    /// Sessions that did not end well, and why.
    pub troubles: Vec<String>,
    /// Time on the clock for all of it.
    pub seconds: f64,
    /// The sessions that other work met.
    pub met: Met,
}

impl Depth {
    /// Sessions of a check; halves of rounds are compared, not intervals.
    fn checks(self) -> usize {
        match self {
            Self::Quick => 2,
            Self::Standard => 3,
        }
    }
}

/// Why such ends cannot be made here.
pub fn are_possible(ends: &Ends) -> Result<(), String> {
    ends.contest().keys(ends).map(drop)
}

/// Measures again, between the sizes of the grid, and scores what the planner makes of `profile`.
pub fn check(
    plan: &Plan<'_>,
    (profile, prefer): (&Profile, Prefer),
    runner: &mut dyn Runner,
    told: &mut dyn FnMut(&Progress<'_>),
) -> Result<Checked, Cancelled> {
    let mut draw = Random::new(plan.seed);
    let mut run = Run::new(plan, runner, told);
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
    Ok(Checked { regrets, seconds, troubles: run.troubles, met })
}

/// The tunings that the planner may choose between these ends: they have to take part.
fn known_tunings(profile: &Profile, ends: &Ends, troubles: &mut Vec<String>) -> Vec<Way> {
    let known = ends.contest().known(profile, ends).unwrap_or_else(|trouble| {
        troubles.push(trouble);
        Vec::new()
    });
    let tuned = known.into_iter().filter(|cell| !cell.tuning.is_default());
    let way = |cell: &Cell| Way { name: cell.mechanism.clone(), tuning: cell.tuning.clone() };
    let mut ways: Vec<Way> = tuned.map(way).collect();
    ways.sort();
    ways.dedup();
    ways
}
