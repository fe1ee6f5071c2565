//! Looks up measurements of mechanisms in a profile, by size, by destination, and by whether the source is lent.

use super::facts::{Destination, Facts};
use super::mechanisms::by_name;
use thalweg_core::profile::{Cell, Evidence, Load, MatchingCells, Ratio, SinkState};
use thalweg_core::{Profile, Unfit};

/// Endpoint name in a cell (a measurement in a profile): memory of another process.
pub const PROCESS: &str = "process";
/// Endpoint name in a cell: memory of another process, as a lent source.
pub const LOAN: &str = "process:loan";
/// Endpoint name in a cell: memory of another process, as a sink on huge pages.
pub const HUGE: &str = "process:huge";

/// Source and sink of a cell, and the state of the sink before the transfer.
type CellEnds<'c> = (&'c str, &'c str, SinkState);

/// Returns the profile's cells for these facts, measured on an idle machine. All ratios for one source and sink have a
/// common reference.
pub fn known<'p>(profile: &'p Profile, facts: &Facts) -> MatchingCells<'p> {
    let source = if facts.will_loan { LOAN } else { PROCESS };
    let (sink, state) = match facts.destination {
        Destination::Unknown | Destination::Resident => (PROCESS, SinkState::Resident),
        Destination::Fresh => (PROCESS, SinkState::Fresh),
        Destination::FreshHuge => (HUGE, SinkState::Fresh),
    };
    let wanted = move |cell: &&Cell| ends_of(cell) == (source, sink, state) && is_usable(cell);
    MatchingCells::among(profile.cells.iter().filter(wanted), facts.size)
}

/// Describes the measurements of a mechanism under these facts for users.
pub fn words(known: &MatchingCells<'_>, evidence: &Evidence, facts: &Facts) -> String {
    format!("{}, {}", evidence.cited(reference(known).unwrap_or("the reference")), facts.ends())
}

/// Returns the saved profile of this machine. The error explains why no measurements of mechanisms exist.
pub fn saved_profile() -> Result<Profile, Unfit> {
    let path = Profile::default_path();
    let path =
        path.ok_or_else(|| Unfit::because("no profile: neither HOME nor THALWEG_PROFILE is set"))?;
    let because = |why: String| Unfit::because(format!("{}: {why}", path.display()));
    let profile = Profile::load(&path).map_err(|e| Unfit::because(e.to_string()))?;
    let profile =
        profile.ok_or_else(|| because("does not exist; `thalweg tune` creates it".into()))?;
    if let Some(stale) = profile.stale().first() {
        return Err(because(format!("the profile is stale ({stale}); run `thalweg tune` again")));
    }
    if measured_at(&profile).is_none() {
        let why = "no measurements between processes; run `thalweg tune --pair process:process`";
        return Err(because(why.into()));
    }
    Ok(profile)
}

/// Returns the time (RFC 3339) of the newest measurement of a mechanism; `None` without measurements.
pub fn measured_at(profile: &Profile) -> Option<&str> {
    let cells = profile.cells.iter().filter(|cell| are_processes(cell) && is_usable(cell));
    cells.map(|cell| cell.at.as_str()).max()
}

/// Returns the reference of the ratios: a mechanism.
fn reference<'p>(known: &MatchingCells<'p>) -> Option<&'p str> {
    let is_one = |cell: &&&Cell| cell.wall == Ratio::ONE && cell.cpu == Ratio::ONE;
    known.cells().iter().find(is_one).map(|cell| cell.mechanism.as_str())
}

/// Returns `true` if the cell was measured on an idle machine, for an existing mechanism, with valid knobs and values.
fn is_usable(cell: &Cell) -> bool {
    cell.load == Load::Idle && is_sound(cell) && can_be(cell)
}

/// Returns source, sink and state of a cell. Memory on huge pages always counts as fresh.
fn ends_of(cell: &Cell) -> CellEnds<'_> {
    let state = if cell.sink == HUGE { SinkState::Fresh } else { cell.sink_state };
    (&cell.source, &cell.sink, state)
}

fn are_processes(cell: &Cell) -> bool {
    [PROCESS, LOAN].contains(&cell.source.as_str()) && [PROCESS, HUGE].contains(&cell.sink.as_str())
}

/// Returns `true` if the numbers of the cell, which come from a file, are plausible.
fn is_sound(cell: &Cell) -> bool {
    let sound = |x: f64| x.is_finite() && x > 0.0;
    sound(cell.wall.ratio) && sound(cell.ns_per_byte) && cell.size > 0
}

/// Returns `true` if the mechanism has all knobs of the cell, with these values. This matters because a knob can
/// determine how much memory is allocated.
fn can_be(cell: &Cell) -> bool {
    by_name(&cell.mechanism).is_some_and(|mechanism| {
        cell.tuning.iter().all(|(name, value)| {
            let knob = mechanism.info().knobs.iter().find(|knob| knob.name == name);
            knob.is_some_and(|knob| knob.values.contains(&value))
        })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bulk::{MECHANISMS, Options, choose::choose};
    use std::sync::Arc;
    use thalweg_core::{Info, Prefer, Role, Tuning};

    fn cell(
        (source, sink): (&str, &str),
        sink_state: SinkState,
        mechanism: &str,
        ratio: f64,
    ) -> Cell {
        let wall = Ratio { ratio, ..Ratio::ONE };
        Cell {
            source: source.into(),
            sink: sink.into(),
            options: Default::default(),
            mechanism: mechanism.into(),
            tuning: Tuning::default(),
            size: 1 << 20,
            load: Load::Idle,
            sink_state,
            wall,
            cpu: Ratio::ONE,
            noise: 0.01,
            ns_per_byte: 0.5,
            memory: None,
            sessions: 3,
            rounds: 10,
            at: "2026-11-21T00:00:00Z".into(),
            provisional: false,
        }
    }

    /// Builds a profile from the relative costs of mechanisms between resident memory.
    pub fn profile<'a>(costs: impl IntoIterator<Item = (&'a str, f64)>) -> Arc<Profile> {
        let cells = costs
            .into_iter()
            .map(|(mechanism, ratio)| cell((PROCESS, PROCESS), RESIDENT, mechanism, ratio));
        Arc::new(of(cells.collect()))
    }

    fn of(cells: Vec<Cell>) -> Profile {
        Profile { cells, ..Profile::new() }
    }

    fn percent(ratio: f64) -> i64 {
        (ratio * 100.0).round() as i64
    }

    const RESIDENT: SinkState = SinkState::Resident;
    const FRESH: SinkState = SinkState::Fresh;

    #[test]
    fn every_combination_has_a_mechanism_of_its_own_and_the_choice_follows() {
        let combinations = [
            ((PROCESS, PROCESS), RESIDENT, Destination::Resident),
            ((PROCESS, PROCESS), FRESH, Destination::Fresh),
            ((PROCESS, HUGE), FRESH, Destination::FreshHuge),
            ((LOAN, PROCESS), RESIDENT, Destination::Resident),
            ((LOAN, PROCESS), FRESH, Destination::Fresh),
            ((LOAN, HUGE), FRESH, Destination::FreshHuge),
        ];
        let movers: Vec<&Info> = MECHANISMS.iter().map(|mechanism| mechanism.info()).collect();
        let movers: Vec<&Info> =
            movers.into_iter().filter(|info| info.role == Role::Mover).collect();
        let mut cells = Vec::new();
        for (n, (ends, state, _)) in combinations.iter().enumerate() {
            for (m, mechanism) in movers.iter().enumerate() {
                let ratio = if n == m { 0.5 } else { 1.0 };
                cells.push(cell(*ends, *state, mechanism.name, ratio));
            }
        }
        let profile = of(cells);
        let best = |facts: &Facts| {
            let plan = choose(facts, &Options::default(), Some(&profile));
            plan.chosen().unwrap().clone()
        };
        for (n, (ends, _, destination)) in combinations.iter().enumerate() {
            let will_loan = ends.0 == LOAN;
            let size = Some(8 << 20);
            let facts = Facts { destination: *destination, will_loan, size, ..Facts::default() };
            let best = best(&facts);
            assert_eq!(best.mechanism, movers[n].name, "{facts:?}");
            assert_eq!(best.evidence.map(|evidence| percent(evidence.wall.ratio)), Some(50));
            let known = known(&profile, &facts);
            let reference = reference(&known);
            assert!(reference.is_some_and(|name| name != movers[n].name), "{facts:?}");
        }
        // A receiver that does not specify the destination is assumed to reuse its buffer.
        assert_eq!(best(&Facts::default()).mechanism, movers[0].name);
    }

    #[test]
    fn a_cost_is_of_the_size_on_the_line_between_two() {
        let at = |size, ratio| Cell {
            size,
            ..cell((PROCESS, PROCESS), RESIDENT, MECHANISMS[0].info().name, ratio)
        };
        let profile = of(vec![at(1 << 10, 4.0), at(1 << 20, 0.25)]);
        let evidence = |size, n: usize| {
            let facts = Facts { size, ..Facts::default() };
            known(&profile, &facts).evidence(MECHANISMS[n].info().name, Prefer::Wall)
        };
        let cost = |size| evidence(size, 0).map_or(0.0, |evidence| evidence.wall.ratio);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(cost(Some(1 << 15)), 1.0) && near(cost(Some(1)), 4.0));
        assert!(near(cost(None), 0.25), "unknown is large");
        assert_eq!(evidence(None, 1), None);
    }

    #[test]
    fn cells_that_no_study_can_have_written_are_not_used() {
        let good = cell((PROCESS, PROCESS), RESIDENT, "ring", 0.5);
        let bad = [
            Cell { tuning: Tuning::of("slot", 1 << 60), ..good.clone() },
            Cell { tuning: Tuning::of("teeth", 3), ..good.clone() },
            Cell { mechanism: "splice".into(), ..good.clone() },
            Cell { load: Load::Loaded, ..good.clone() },
            Cell { source: "pipe".into(), ..good.clone() },
            Cell { sink: LOAN.into(), ..good.clone() },
            Cell { wall: Ratio { ratio: f64::NAN, ..Ratio::ONE }, ..good.clone() },
        ];
        let bad = of(bad.to_vec());
        assert!(known(&bad, &Facts::default()).cells().is_empty() && measured_at(&bad).is_none());
        assert_eq!(measured_at(&of(vec![good])), Some("2026-11-21T00:00:00Z"));
    }

    #[test]
    fn a_tuning_must_be_better_by_more_than_noise_and_a_loan_is_a_case_of_its_own() {
        let plain = cell((PROCESS, PROCESS), RESIDENT, "ring", 0.9);
        let tuned = |ratio| Cell {
            tuning: Tuning::of("slot", 64 << 10),
            ..cell((PROCESS, PROCESS), RESIDENT, "ring", ratio)
        };
        let of = |cells: &[Cell], will_loan| {
            let facts = Facts { will_loan, ..Facts::default() };
            let profile = of(cells.to_vec());
            let evidence = known(&profile, &facts).evidence("ring", Prefer::Wall);
            evidence.map(|e| (e.tuning.is_default(), percent(e.wall.ratio)))
        };
        assert_eq!(of(&[plain.clone(), tuned(0.89)], false), Some((true, 90)));
        assert_eq!(of(&[plain.clone(), tuned(0.5)], false), Some((false, 50)));
        let lent = cell((LOAN, PROCESS), RESIDENT, "ring", 0.1);
        assert_eq!(of(&[plain.clone(), lent.clone()], true), Some((true, 10)));
        assert_eq!(of(&[plain.clone(), lent], false), Some((true, 90)));
        assert_eq!(of(&[plain], true), None);
    }
}
