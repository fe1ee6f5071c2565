//! Measured costs of the arms, as a table that the choice can ask: by arm, size, where the bytes
//! land, and whether the source is lent.

use super::arms::by_name;
use super::choose::{Destination, Facts, Measured};
use thalweg_core::Tuning;
use thalweg_core::profile::{Cell, Load, SinkState};

/// One measured point.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The arm.
    pub arm: String,
    /// Its knobs.
    pub tuning: Tuning,
    /// Where the bytes landed; [`Destination::Unknown`] is taken for resident memory.
    pub destination: Destination,
    /// The source was written into a loan.
    pub lent: bool,
    /// Bytes of the buffer.
    pub size: u64,
    /// In any unit that is the same for all figures of one table; less is better.
    pub cost: f64,
}

/// A table of them, which answers for any size: between two of one tuning by a straight line in
/// logarithms, outside them by the nearest.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<Figure>);

/// The end of a cell of a profile that is another process's memory.
pub const PROCESS: &str = "process";
/// The same, for a source that was lent.
pub const LOAN: &str = "process:loan";
/// The same, for a sink on huge pages.
pub const HUGE: &str = "process:huge";

impl Figures {
    /// A table of these; a cost that is no positive number, or a size of 0, is left out.
    pub fn new(figures: impl IntoIterator<Item = Figure>) -> Self {
        let sound = |f: &Figure| f.cost.is_finite() && f.cost > 0.0 && f.size > 0;
        let mut figures: Vec<Figure> = figures.into_iter().filter(sound).collect();
        figures.sort_by(|a, b| (&a.arm, &a.tuning, a.size).cmp(&(&b.arm, &b.tuning, b.size)));
        Self(figures)
    }

    /// What a profile knows: its cells from [`PROCESS`] or [`LOAN`] to [`PROCESS`] or [`HUGE`] on the
    /// idle machine, whose mechanism is an arm and whose knobs it has.
    pub fn of_cells<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> Self {
        let cells = cells.into_iter().filter(|cell| cell.load == Load::Idle && can_be(cell));
        Self::new(cells.filter_map(|cell| {
            let lent = match cell.source.as_str() {
                PROCESS => false,
                LOAN => true,
                _ => return None,
            };
            let destination = match (cell.sink.as_str(), cell.sink_state) {
                (PROCESS, SinkState::Resident) => Destination::Resident,
                (PROCESS, SinkState::Fresh) => Destination::Fresh,
                (HUGE, _) => Destination::FreshHuge,
                _ => return None,
            };
            let (arm, tuning) = (cell.mechanism.clone(), cell.tuning.clone());
            Some(Figure { arm, tuning, destination, lent, size: cell.size, cost: cell.wall.ratio })
        }))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The best tuning of an arm under these facts, and its cost.
    fn best(&self, facts: &Facts, arm: &str) -> Option<(f64, &Tuning)> {
        let lands = match facts.destination {
            Destination::Unknown => Destination::Resident,
            told => told,
        };
        let fits = |figure: &&Figure, lent| {
            let own = match figure.destination {
                Destination::Unknown => Destination::Resident,
                own => own,
            };
            figure.arm == arm && own == lands && figure.lent == lent
        };
        let of = |lent| self.0.iter().filter(|figure| fits(figure, lent)).collect::<Vec<_>>();
        // An arm that does nothing with a loan was not measured with one.
        let mut points = of(facts.will_loan);
        if points.is_empty() && facts.will_loan {
            points = of(false);
        }
        let lines = points.chunk_by(|a, b| a.tuning == b.tuning);
        let costs = lines.map(|line| (cost_at(line, facts.size), &line[0].tuning));
        costs.min_by(|a, b| a.0.total_cmp(&b.0))
    }
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

/// The cost on the line through these points of rising sizes, of which there is at least one.
fn cost_at(line: &[&Figure], size: Option<u64>) -> f64 {
    // Of unknown size is taken as large.
    let size = size.unwrap_or(u64::MAX).max(1);
    let above = line.partition_point(|figure| figure.size < size);
    let (a, b) = (line[above.saturating_sub(1)], line[above.min(line.len() - 1)]);
    if a.size == b.size {
        return a.cost;
    }
    let ln = |x: u64| (x as f64).ln();
    let share = (ln(size) - ln(a.size)) / (ln(b.size) - ln(a.size));
    (a.cost.ln() * (1.0 - share) + b.cost.ln() * share).exp()
}

impl Measured for Figures {
    fn cost(&self, facts: &Facts, arm: &str) -> Option<f64> {
        self.best(facts, arm).map(|(cost, _)| cost)
    }

    fn tuning(&self, facts: &Facts, arm: &str) -> Option<Tuning> {
        self.best(facts, arm).map(|(_, tuning)| tuning.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(arm: &str, destination: Destination, size: u64, cost: f64) -> Figure {
        let (arm, tuning) = (arm.to_owned(), Tuning::default());
        Figure { arm, tuning, destination, lent: false, size, cost }
    }

    #[test]
    fn a_cost_is_of_the_size_and_of_where_the_bytes_land() {
        let table = Figures::new([
            figure("a", Destination::Resident, 1 << 10, 4.0),
            figure("a", Destination::Resident, 1 << 20, 0.25),
            figure("a", Destination::Fresh, 1 << 20, 7.0),
            figure("a", Destination::Resident, 1 << 30, f64::NAN),
        ]);
        let cost = |destination, size| {
            let facts = Facts { destination, size, ..Facts::default() };
            table.cost(&facts, "a")
        };
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(near(cost(Destination::Unknown, Some(1 << 15)), 1.0));
        assert!(near(cost(Destination::Resident, Some(1)), 4.0));
        assert!(near(cost(Destination::Resident, None), 0.25));
        assert!(near(cost(Destination::Fresh, Some(1)), 7.0));
        assert_eq!(cost(Destination::FreshHuge, Some(1)), None);
        assert_eq!(table.cost(&Facts::default(), "b"), None);
    }

    #[test]
    fn a_profile_speaks_of_processes_by_its_cells() {
        use thalweg_core::profile::Ratio;
        let cell = |source: &str, sink_state, tuning, ratio| Cell {
            source: source.into(),
            sink: PROCESS.into(),
            options: Default::default(),
            mechanism: "ring".into(),
            tuning,
            size: 1 << 20,
            load: Load::Idle,
            sink_state,
            wall: Ratio { ratio, ..Ratio::ONE },
            cpu: Ratio::ONE,
            noise: 0.01,
            ns_per_byte: 0.5,
            memory: None,
            sessions: 3,
            rounds: 10,
            at: "2026-11-21T00:00:00Z".into(),
        };
        let default = Tuning::default();
        let cells = [
            cell(PROCESS, SinkState::Fresh, default.clone(), 0.7),
            cell(PROCESS, SinkState::Resident, default.clone(), 0.5),
            cell(PROCESS, SinkState::Resident, Tuning::of("slot", 1 << 60), 0.1),
            cell("pipe", SinkState::Resident, default.clone(), 0.1),
        ];
        let table = Figures::of_cells(&cells);
        let fresh = Facts { destination: Destination::Fresh, ..Facts::default() };
        assert_eq!(table.cost(&Facts::default(), "ring"), Some(0.5));
        assert_eq!(table.cost(&fresh, "ring"), Some(0.7));
        assert!(Figures::of_cells(&cells[3..]).is_empty());
    }

    #[test]
    fn the_better_tuning_is_named_and_a_loan_counts_where_it_was_measured() {
        let tuned = Figure {
            tuning: Tuning::of("slot", 4096),
            ..figure("a", Destination::Resident, 1, 0.5)
        };
        let lent = Figure { lent: true, ..figure("a", Destination::Resident, 1, 0.1) };
        let plain = figure("a", Destination::Resident, 1, 0.9);
        let table = Figures::new([plain.clone(), tuned.clone(), lent]);
        assert_eq!(table.tuning(&Facts::default(), "a"), Some(tuned.tuning));
        let facts = Facts { will_loan: true, ..Facts::default() };
        assert_eq!(table.cost(&facts, "a"), Some(0.1));
        assert_eq!(Figures::new([plain]).cost(&facts, "a"), Some(0.9));
    }
}
