//! What a profile knows of ways between processes, as a table that the choice can ask: by arm, size,
//! where the bytes land, and whether the source is lent.

use super::arms::by_name;
use super::choice::Cited;
use super::choose::{Destination, Facts, Measured};
use thalweg_core::profile::{Cell, Evidence, Known, Load, Ratio, SinkState};
use thalweg_core::{Prefer, Profile, Tuning, Unfit};

/// The cells of a profile between two processes on the idle machine.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<Cell>);

/// The end of a cell of a profile that is another process's memory.
pub const PROCESS: &str = "process";
/// The same, for a source that was lent.
pub const LOAN: &str = "process:loan";
/// The same, for a sink on huge pages.
pub const HUGE: &str = "process:huge";

/// The source and the sink of a cell, and what the sink was like before.
type Ends<'c> = (&'c str, &'c str, SinkState);

impl Figures {
    /// Those of these cells that are of arms, with knobs and values that they have.
    pub fn of_cells<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> Self {
        let usable = |cell: &&Cell| {
            cell.load == Load::Idle && are_processes(cell) && is_sound(cell) && can_be(cell)
        };
        Self(cells.into_iter().filter(usable).cloned().collect())
    }

    /// What the saved profile of this machine knows; the error says why that is nothing.
    pub fn saved() -> Result<Self, Unfit> {
        let path = Profile::default_path();
        let path = path.ok_or_else(|| Unfit::because("there is no place for a profile"))?;
        let because = |why: String| Unfit::because(format!("{}: {why}", path.display()));
        let profile = Profile::load(&path).map_err(|e| Unfit::because(e.to_string()))?;
        let profile =
            profile.ok_or_else(|| because("not there; `thalweg tune` makes it".into()))?;
        if let Some(stale) = profile.stale().first() {
            return Err(because(format!("stale ({stale})")));
        }
        let figures = Self::of_cells(&profile.cells);
        if figures.is_empty() {
            let why = "nothing between processes; see `thalweg tune --pair process:process`";
            return Err(because(why.into()));
        }
        Ok(figures)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the newest was measured, RFC 3339.
    pub fn newest(&self) -> Option<&str> {
        self.0.iter().map(|cell| cell.at.as_str()).max()
    }

    /// What is known of an arm under these facts: its best tuning and what it cost.
    pub fn evidence(&self, facts: &Facts, arm: &str) -> Option<Evidence> {
        Known::among(self.between(facts), facts.size).evidence(arm, Prefer::Wall)
    }

    /// The arm that the ratios under these facts are to.
    pub fn reference(&self, facts: &Facts) -> Option<&str> {
        let is_one = |cell: &&Cell| cell.wall == Ratio::ONE && cell.cpu == Ratio::ONE;
        self.between(facts).find(is_one).map(|cell| cell.mechanism.as_str())
    }

    /// What was measured of an arm under these facts, for people.
    pub fn words(&self, evidence: &Evidence, facts: &Facts) -> String {
        let reference = self.reference(facts).unwrap_or("the reference");
        format!("{}, {}", evidence.cited(reference), facts.ends())
    }

    /// The cells of one source and sink: their ratios are to the same reference.
    fn between(&self, facts: &Facts) -> impl Iterator<Item = &Cell> {
        let source = if facts.will_loan { LOAN } else { PROCESS };
        let (sink, state) = match facts.destination {
            Destination::Unknown | Destination::Resident => (PROCESS, SinkState::Resident),
            Destination::Fresh => (PROCESS, SinkState::Fresh),
            Destination::FreshHuge => (HUGE, SinkState::Fresh),
        };
        self.0.iter().filter(move |cell| ends_of(cell) == (source, sink, state))
    }
}

/// Memory on huge pages is always new.
fn ends_of(cell: &Cell) -> Ends<'_> {
    let state = if cell.sink == HUGE { SinkState::Fresh } else { cell.sink_state };
    (&cell.source, &cell.sink, state)
}

fn are_processes(cell: &Cell) -> bool {
    [PROCESS, LOAN].contains(&cell.source.as_str()) && [PROCESS, HUGE].contains(&cell.sink.as_str())
}

/// What a profile that was read from its file has been checked for.
fn is_sound(cell: &Cell) -> bool {
    let sound = |x: f64| x.is_finite() && x > 0.0;
    sound(cell.wall.ratio) && sound(cell.ns_per_byte) && cell.size > 0
}

/// Whether its knobs are the arm's, and of values that were there to be tried: they decide how much
/// memory is made.
fn can_be(cell: &Cell) -> bool {
    by_name(&cell.mechanism).is_some_and(|arm| {
        cell.tuning.iter().all(|(name, value)| {
            let knob = arm.info().knobs.iter().find(|knob| knob.name == name);
            knob.is_some_and(|knob| knob.values.contains(&value))
        })
    })
}

impl Measured for Figures {
    fn cost(&self, facts: &Facts, arm: &str) -> Option<f64> {
        self.evidence(facts, arm).map(|evidence| evidence.wall.ratio)
    }

    fn noise(&self, facts: &Facts, arm: &str) -> f64 {
        self.evidence(facts, arm).map_or(0.0, |evidence| evidence.noise)
    }

    fn tuning(&self, facts: &Facts, arm: &str) -> Option<Tuning> {
        self.evidence(facts, arm).map(|evidence| evidence.tuning)
    }

    fn cited(&self, facts: &Facts, arm: &str) -> Option<Cited> {
        let evidence = self.evidence(facts, arm)?;
        Some(Cited { words: self.words(&evidence, facts), evidence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{ARMS, Options, choose};
    use std::sync::Arc;

    fn cell((source, sink): (&str, &str), sink_state: SinkState, arm: &str, ratio: f64) -> Cell {
        let wall = Ratio { ratio, ..Ratio::ONE };
        Cell {
            source: source.into(),
            sink: sink.into(),
            options: Default::default(),
            mechanism: arm.into(),
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
        }
    }

    fn percent(ratio: f64) -> i64 {
        (ratio * 100.0).round() as i64
    }

    const RESIDENT: SinkState = SinkState::Resident;
    const FRESH: SinkState = SinkState::Fresh;

    #[test]
    fn every_combination_has_an_arm_of_its_own_and_the_choice_follows() {
        let combinations = [
            ((PROCESS, PROCESS), RESIDENT, Destination::Resident),
            ((PROCESS, PROCESS), FRESH, Destination::Fresh),
            ((PROCESS, HUGE), FRESH, Destination::FreshHuge),
            ((LOAN, PROCESS), RESIDENT, Destination::Resident),
            ((LOAN, PROCESS), FRESH, Destination::Fresh),
            ((LOAN, HUGE), FRESH, Destination::FreshHuge),
        ];
        let mut cells = Vec::new();
        for (n, (ends, state, _)) in combinations.iter().enumerate() {
            for (m, arm) in ARMS.iter().enumerate() {
                let ratio = if n == m { 0.5 } else { 1.0 };
                cells.push(cell(*ends, *state, arm.info().name, ratio));
            }
        }
        let figures = Figures::of_cells(&cells);
        let options = Options { measured: Some(Arc::new(figures.clone())), ..Options::default() };
        for (n, (ends, _, destination)) in combinations.iter().enumerate() {
            let will_loan = ends.0 == LOAN;
            let size = Some(8 << 20);
            let facts = Facts { destination: *destination, will_loan, size, ..Facts::default() };
            let best = &choose(&facts, &options)[0];
            assert_eq!(best.arm.info().name, ARMS[n].info().name, "{facts:?}");
            assert_eq!(best.cost.map(percent), Some(50));
            let reference = figures.reference(&facts);
            assert!(reference.is_some_and(|name| name != ARMS[n].info().name), "{facts:?}");
        }
        // Whoever does not say where the bytes land is taken to keep its buffer.
        let unknown = &choose(&Facts::default(), &options)[0];
        assert_eq!(unknown.arm.info().name, ARMS[0].info().name);
    }

    #[test]
    fn a_cost_is_of_the_size_on_the_line_between_two() {
        let at = |size, ratio| Cell {
            size,
            ..cell((PROCESS, PROCESS), RESIDENT, ARMS[0].info().name, ratio)
        };
        let table = Figures::of_cells(&[at(1 << 10, 4.0), at(1 << 20, 0.25)]);
        let cost = |size| {
            table.cost(&Facts { size, ..Facts::default() }, ARMS[0].info().name).unwrap_or(0.0)
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(cost(Some(1 << 15)), 1.0) && near(cost(Some(1)), 4.0));
        assert!(near(cost(None), 0.25), "unknown is large");
        assert_eq!(table.cost(&Facts::default(), ARMS[1].info().name), None);
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
        assert!(Figures::of_cells(&bad).is_empty());
        assert_eq!(Figures::of_cells([&good]).newest(), Some("2026-11-21T00:00:00Z"));
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
            let evidence = Figures::of_cells(cells).evidence(&facts, "ring");
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
