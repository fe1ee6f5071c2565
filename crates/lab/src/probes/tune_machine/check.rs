//! `tune --check`: later sessions on sizes that the profile has not seen, to be scored by regret.

mod fleet;

pub use fleet::{Held, held_out};

use thalweg_core::{
    Cancelled, Facts, Profile, Unfit,
    profile::{Cell, Load, SinkState},
};

use super::{
    EndKeys, Plan, Progress, Run,
    arms::{keys_of, whole},
    grid::{Depth, between},
    job::Way,
    pair::Ends,
    processes,
    regret::{Regret, regrets},
    runner::Runner,
};
use crate::measure::stats::Random;
use thalweg_core::Prefer;

#[derive(Clone, Debug)]
pub struct Checked {
    /// A regret for each pair, load and promise.
    pub regrets: Vec<Regret>,
    /// Sessions that did not end well, and why.
    pub troubles: Vec<String>,
    /// Time on the clock for all of it.
    pub seconds: f64,
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
    // Who takes part between processes, or in memory, shows when it is tried.
    if ends.are_memory() || ends.are_processes() { Ok(()) } else { look_at(ends).map(drop) }
}

/// What the planner knows of these ends, and how a profile names them; or why they cannot be made.
pub fn look_at(ends: &Ends) -> Result<(Facts, EndKeys), String> {
    let stop = || Ok(());
    let made = whole(ends, SinkState::Fresh, &stop).and_then(|mut whole| {
        whole.resize(1)?;
        Ok(whole)
    });
    let facts = made.map_err(|e| format!("{ends}: {e}"))?.facts();
    let facts = facts.map_err(|failure| format!("{ends}: {}", Unfit::from(failure)))?;
    let keys = keys_of(&facts);
    Ok((facts, keys))
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
    let surveys = run.sessions(planned, sessions)?;
    let regrets = surveys.iter().flat_map(|survey| regrets(survey, profile, prefer));
    Ok(Checked { regrets: regrets.collect(), seconds: run.seconds(), troubles: run.troubles })
}

/// The tunings that the planner may choose between these ends: they have to take part.
fn known_tunings(profile: &Profile, ends: &Ends, troubles: &mut Vec<String>) -> Vec<Way> {
    if ends.are_memory() {
        return Vec::new();
    }
    let way = |cell: &Cell| Way { name: cell.mechanism.clone(), tuning: cell.tuning.clone() };
    let is_tuned = |cell: &&Cell| !cell.tuning.is_default();
    let mut ways: Vec<Way> = if ends.are_processes() {
        let keys = processes::keys(ends);
        processes::known(profile, &keys).filter(is_tuned).map(way).collect()
    } else {
        let facts = match look_at(ends) {
            Ok((facts, _)) => facts,
            Err(trouble) => {
                troubles.push(trouble);
                return Vec::new();
            }
        };
        let known = [Load::Idle, Load::Loaded].map(|load| profile.known(&facts, load));
        let cells = known.iter().flat_map(|known| known.cells().iter().copied());
        cells.filter(is_tuned).map(way).collect()
    };
    ways.sort();
    ways.dedup();
    ways
}
