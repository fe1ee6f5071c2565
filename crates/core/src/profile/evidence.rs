//! The evidence of a profile for one transfer: the cells (measurements) for its endpoints, with interpolation between
//! their sizes. A reader is the program at the other end of a pipe or socket. A survey may measure two readers: one
//! that requests 64 KiB per call, and one that requests 1 MiB.

use serde::Serialize;

use super::{Cell, LEAST_NOISE, Load, Profile, Ratio, SinkState};
use crate::{Facts, Prefer, Tuning};

/// Evidence of a profile about a mechanism for one transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The tuning that was measured.
    pub tuning: Tuning,
    /// Ratio of wall time at the size of the transfer, by log-log interpolation between the measured sizes.
    pub wall: Ratio,
    /// Ratio of CPU time.
    pub cpu: Ratio,
    /// The largest noise floor of the cells used, at least [`LEAST_NOISE`].
    pub noise: f64,
    /// Expected nanoseconds per byte.
    pub ns_per_byte: f64,
    /// Private memory that the mechanism held, in bytes, if it was measured.
    pub memory: Option<u64>,
    /// Date of the newest cell used.
    pub at: String,
    /// The smallest number of sessions of any cell used.
    pub sessions: u32,
    /// The smallest number of rounds of any cell used.
    pub rounds: u32,
    /// The load of the machine during the measurement. It may differ from the requested load.
    pub load: Load,
    /// The state of the sink before the measured transfers. It may differ from the requested state.
    pub sink_state: SinkState,
    /// The evidence of each reader, if two readers were measured. The ratios above are then the middle of both readers'
    /// ratios, and their intervals contain those of both.
    #[serde(skip)]
    pub by_reader: Vec<Evidence>,
}

/// The cells of a profile for the endpoints of a transfer, under the conditions nearest to it.
///
/// All cells have the same conditions, because ratios under different loads cannot be compared.
#[derive(Clone, Debug)]
pub struct MatchingCells<'p> {
    cells: Vec<&'p Cell>,
    size: Option<u64>,
}

// Avoids a division by zero for mechanisms that hold no memory.
const LEAST_MEMORY: u64 = 4096;

impl Evidence {
    /// Creates evidence from a comparison during this run instead of a profile. `rounds`: the number of its rounds.
    pub fn of_this_run(wall: Ratio, cpu: Ratio, rounds: u32) -> Self {
        Self {
            tuning: Tuning::default(),
            wall,
            cpu,
            noise: LEAST_NOISE,
            ns_per_byte: 0.0,
            memory: None,
            at: String::new(),
            sessions: 1,
            rounds,
            load: Load::Idle,
            sink_state: SinkState::Fresh,
            by_reader: Vec::new(),
        }
    }

    /// Returns the cost that counts for `prefer`. A score has no unit; it can only be compared with other scores.
    pub fn score(&self, prefer: Prefer) -> f64 {
        match prefer {
            Prefer::Wall | Prefer::Cpu => self.counted(prefer).ratio,
            Prefer::Memory => {
                self.memory.map_or(f64::INFINITY, |bytes| bytes.saturating_add(LEAST_MEMORY) as f64)
            }
        }
    }

    /// Returns the ratio that counts for `prefer`: CPU time for [`Prefer::Cpu`], otherwise wall time.
    pub fn counted(&self, prefer: Prefer) -> &Ratio {
        match prefer {
            Prefer::Cpu => &self.cpu,
            Prefer::Wall | Prefer::Memory => &self.wall,
        }
    }

    /// Returns `true` if, with at least one reader, this candidate costs no more than `other` plus the noise. Noise
    /// above the share `most` counts as `most`.
    pub(crate) fn is_as_good_for_some_reader(&self, other: &Self, most: f64) -> bool {
        let both = self.by_reader.iter().zip(&other.by_reader);
        let mut ties = both.map(|(own, other)| own.ties_with(other.wall.ratio, Prefer::Wall, most));
        ties.any(|is_tie| is_tie)
    }

    /// Returns `true` if this candidate is faster than `other` with one reader, and slower with another reader.
    pub(crate) fn flips_with(&self, other: &Self) -> bool {
        let both = || self.by_reader.iter().zip(&other.by_reader);
        both().any(|(own, other)| own.wall.ratio < other.wall.ratio)
            && both().any(|(own, other)| own.wall.ratio > other.wall.ratio)
    }

    /// Combines the evidence of two readers at the other end.
    fn of_readers(first: Self, second: Self) -> Self {
        let both = |a: &Ratio, b: &Ratio| {
            let ratio = Ratio::between(a, b, 0.5).ratio;
            Ratio { ratio, lo: a.lo.min(b.lo), hi: a.hi.max(b.hi) }
        };
        Self {
            tuning: first.tuning.clone(),
            wall: both(&first.wall, &second.wall),
            cpu: both(&first.cpu, &second.cpu),
            noise: first.noise.max(second.noise),
            ns_per_byte: (first.ns_per_byte * second.ns_per_byte).sqrt(),
            memory: first.memory.zip(second.memory).map(|(a, b)| a.max(b)),
            at: first.at.clone().max(second.at.clone()),
            sessions: first.sessions.min(second.sessions),
            rounds: first.rounds.min(second.rounds),
            load: first.load,
            sink_state: first.sink_state,
            by_reader: vec![first, second],
        }
    }

    /// Formats the evidence for display:
    /// `measured 2026-11-21: 0.84x read-write [0.80, 0.88], CPU time 0.71x, 3 sessions, idle`.
    pub fn cited(&self, reference: &str) -> String {
        format!(
            "measured {}: {:.2}x {reference} [{:.2}, {:.2}], CPU time {:.2}x, {} session{}, {}{}",
            day(&self.at),
            self.wall.ratio,
            self.wall.lo,
            self.wall.hi,
            self.cpu.ratio,
            self.sessions,
            if self.sessions == 1 { "" } else { "s" },
            self.load.name(),
            if self.by_reader.is_empty() {
                ""
            } else {
                ", with readers that read 64K and 1M at a time"
            },
        )
    }
}

/// Returns the date of an RFC 3339 timestamp.
pub fn day(at: &str) -> &str {
    at.split('T').next().unwrap_or_default()
}

impl Profile {
    /// Returns the measurements between endpoints of these kinds. Uses cells of another load or sink state only if none
    /// exist for the requested ones.
    pub fn known(&self, facts: &Facts, load: Load) -> MatchingCells<'_> {
        let mut cells = self.nearest(facts, load);
        // A copy's observation of a mechanism at about this size replaces the survey's measurements of the mechanism.
        let seen = seen_in(&cells);
        cells.retain(|cell| cell.provisional || !seen.contains(&&*cell.mechanism));
        MatchingCells::among(cells, facts.len)
    }

    /// Returns the survey's measurements alone if observations of copies replace some of them; otherwise `None`.
    pub(crate) fn displaced(&self, facts: &Facts, load: Load) -> Option<MatchingCells<'_>> {
        let mut cells = self.nearest(facts, load);
        let seen = seen_in(&cells);
        cells.retain(|cell| !cell.provisional);
        let is_displaced = cells.iter().any(|cell| seen.contains(&&*cell.mechanism));
        is_displaced.then(|| MatchingCells::among(cells, facts.len))
    }

    /// Returns the cells for endpoints of these kinds and this size, measured under the conditions nearest to the
    /// requested ones.
    fn nearest(&self, facts: &Facts, load: Load) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = self.cells.iter().filter(|c| c.speaks_of(facts)).collect();
        let state = if facts.sink.filled { SinkState::Resident } else { SinkState::Fresh };
        let away = |cell: &Cell| (cell.load != load, cell.sink_state != state);
        let nearest = cells.iter().map(|cell| away(cell)).min();
        cells.retain(|cell| Some(away(cell)) == nearest && cell.reaches(facts.len));
        cells
    }
}

/// Returns the mechanisms for which copies have recorded observations.
fn seen_in<'p>(cells: &[&'p Cell]) -> Vec<&'p str> {
    cells.iter().filter(|cell| cell.provisional).map(|cell| &*cell.mechanism).collect()
}

impl<'p> MatchingCells<'p> {
    /// Uses these cells, which must have one pair of endpoints and the same conditions, for a transfer of this size.
    pub fn among(cells: impl IntoIterator<Item = &'p Cell>, size: Option<u64>) -> Self {
        let mut cells: Vec<&Cell> = cells.into_iter().collect();
        cells.sort_by(|a, b| a.order().cmp(&b.order()));
        Self { cells, size }
    }

    /// Returns the evidence of a mechanism with its best tuning, at the size of the transfer. Another tuning replaces
    /// the default only if it is better by more than [`LEAST_NOISE`], because one of many similar tunings always looks
    /// best by chance. `None` if the mechanism was never measured between endpoints of these kinds.
    pub fn evidence(&self, mechanism: &str, prefer: Prefer) -> Option<Evidence> {
        let lines: Vec<Evidence> = self.joined(mechanism).collect();
        let best = lines.iter().min_by(|a, b| {
            let by_score = a.score(prefer).total_cmp(&b.score(prefer));
            by_score.then(a.wall.ratio.total_cmp(&b.wall.ratio))
        })?;
        let default = lines.iter().find(|line| line.tuning.is_default());
        let as_good =
            default.filter(|d| d.score(prefer) <= best.score(prefer) * (1.0 + LEAST_NOISE));
        Some(as_good.unwrap_or(best).clone())
    }

    /// Returns the evidence of a mechanism for each of its tunings. Combines the evidence of two readers if both were
    /// measured.
    fn joined(&self, mechanism: &str) -> impl Iterator<Item = Evidence> {
        let of_it = |line: &&[&Cell]| line[0].mechanism == mechanism;
        let lines: Vec<&[&Cell]> = self.measured().filter(of_it).collect();
        let joined = |line: &[&Cell]| {
            let is_other = |other: &&&[&Cell]| {
                other[0].tuning == line[0].tuning && other[0].sink != line[0].sink
            };
            let own = interpolate(line, self.size);
            match lines.iter().find(is_other) {
                // These cells are the second reader's. The usual reader's evidence is combined with them below.
                Some(_) if line[0].sink != line[0].sink() => None,
                Some(other) => Some(Evidence::of_readers(own, interpolate(other, self.size))),
                None => Some(own),
            }
        };
        lines.iter().filter_map(|line| joined(line)).collect::<Vec<_>>().into_iter()
    }

    /// Returns one group of cells for each mechanism, tuning and reader, called a line, by rising size.
    fn measured(&self) -> impl Iterator<Item = &[&'p Cell]> {
        self.cells.chunk_by(|a, b| {
            (&a.sink, &a.mechanism, &a.tuning) == (&b.sink, &b.mechanism, &b.tuning)
        })
    }

    /// Returns all evidence that a choice may use: for every mechanism and tuning, of each reader and of both.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Evidence> {
        let mut names: Vec<&str> = self.cells.iter().map(|cell| cell.mechanism.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let joined = names.into_iter().flat_map(|name| self.joined(name));
        self.measured().map(|line| interpolate(line, self.size)).chain(joined)
    }

    /// Returns the cells, ordered by source, sink, mechanism, tuning and size.
    pub fn cells(&self) -> &[&'p Cell] {
        &self.cells
    }
}

/// Returns the evidence at `size`, interpolated between `cells`: at least one cell, all of one tuning, by rising size.
fn interpolate(cells: &[&Cell], size: Option<u64>) -> Evidence {
    // A stream of unknown length counts as infinitely long.
    let size = size.unwrap_or(u64::MAX).max(1);
    let above = cells.partition_point(|cell| cell.size < size);
    let (a, b) = (cells[above.saturating_sub(1)], cells[above.min(cells.len() - 1)]);
    let ln = |x: u64| (x as f64).ln();
    let share =
        if a.size == b.size { 0.0 } else { (ln(size) - ln(a.size)) / (ln(b.size) - ln(a.size)) };
    let ns = (a.ns_per_byte.ln() * (1.0 - share) + b.ns_per_byte.ln() * share).exp();
    Evidence {
        tuning: a.tuning.clone(),
        wall: Ratio::between(&a.wall, &b.wall, share),
        cpu: Ratio::between(&a.cpu, &b.cpu, share),
        noise: a.noise.max(b.noise).max(LEAST_NOISE),
        ns_per_byte: ns,
        memory: a.memory.zip(b.memory).map(|(a, b)| a.max(b)),
        at: a.at.clone().max(b.at.clone()),
        sessions: a.sessions.min(b.sessions),
        rounds: a.rounds.min(b.rounds),
        load: a.load,
        sink_state: a.sink_state,
        by_reader: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{LARGE_READS, cell::tests::cell},
        *,
    };
    use crate::{EndFacts, Guarantees, Kind};

    fn facts(len: Option<u64>) -> Facts {
        let pipe = EndFacts { kind: Kind::Pipe, addressed: false, ..EndFacts::MEMORY };
        Facts { source: pipe.clone(), sink: pipe, len, needs: Guarantees::default() }
    }

    fn of_splice(profile: &Profile, len: Option<u64>, load: Load) -> Evidence {
        profile.known(&facts(len), load).evidence("splice", Prefer::Wall).expect("measured")
    }

    #[test]
    fn between_two_sizes_the_line_is_straight_in_logarithms() {
        let mut profile = Profile::new();
        profile.merge(vec![cell("splice", 1 << 10, 4.0), cell("splice", 1 << 20, 0.25)]);
        let ratio_at = |len| of_splice(&profile, len, Load::Idle).wall.ratio;
        assert!((ratio_at(Some(1 << 15)) - 1.0).abs() < 1e-9);
        assert!((ratio_at(Some(1)) - 4.0).abs() < 1e-9);
        assert!((ratio_at(Some(1 << 40)) - 0.25).abs() < 1e-9);
        assert!((ratio_at(None) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn between_equal_ratios_every_size_has_exactly_this_ratio() {
        let mut profile = Profile::new();
        profile.merge(vec![cell("splice", 1 << 10, 0.2), cell("splice", 1 << 20, 0.2)]);
        for len in [1500, 57_617, 99_999, 1 << 19] {
            let ratio = of_splice(&profile, Some(len), Load::Idle).wall.ratio;
            assert_eq!(ratio.to_bits(), 0.2_f64.to_bits(), "{len}: {ratio}");
        }
    }

    #[test]
    fn the_better_tuning_is_taken_and_other_ends_are_not() {
        let mut profile = Profile::new();
        let mut tuned = cell("splice", 1 << 10, 0.5);
        tuned.tuning = Tuning::of("pipe", 4096);
        let mut elsewhere = cell("splice", 1 << 10, 0.1);
        elsewhere.source = "socket:unix".into();
        profile.merge(vec![cell("splice", 1 << 10, 0.9), tuned.clone(), elsewhere]);
        assert_eq!(of_splice(&profile, Some(1 << 10), Load::Idle).tuning, tuned.tuning);
        let known = profile.known(&facts(None), Load::Idle);
        assert!(known.evidence("sendfile", Prefer::Wall).is_none());
    }

    #[test]
    fn the_load_that_was_asked_for_counts_and_the_other_only_where_it_is_all_there_is() {
        let mut profile = Profile::new();
        profile.merge(vec![cell("splice", 1 << 10, 1.3)]);
        let other = of_splice(&profile, None, Load::Loaded);
        assert!(other.load == Load::Idle && other.wall.ratio > 1.2);
        profile.merge(vec![Cell { load: Load::Loaded, ..cell("splice", 1 << 10, 0.6) }]);
        let ratio = |load| of_splice(&profile, None, load).wall.ratio;
        assert!((ratio(Load::Loaded) - 0.6).abs() < 1e-9 && (ratio(Load::Idle) - 1.3).abs() < 1e-9);
    }

    #[test]
    fn a_sink_that_is_written_over_has_cells_of_its_own() {
        let mut profile = Profile::new();
        let over = Cell { sink_state: SinkState::Resident, ..cell("splice", 1 << 10, 0.5) };
        profile.merge(vec![cell("splice", 1 << 10, 0.9), over]);
        let mut facts = facts(None);
        facts.sink.filled = true;
        let known = profile.known(&facts, Load::Idle);
        let evidence = known.evidence("splice", Prefer::Wall).unwrap();
        assert!(evidence.sink_state == SinkState::Resident && evidence.wall.ratio < 0.6);
        assert_eq!(known.cells().len(), 1);
    }

    #[test]
    fn two_readers_are_kept_apart_and_count_together() {
        let mut profile = Profile::new();
        let large = |cell: Cell| Cell { sink: format!("pipe{LARGE_READS}"), ..cell };
        profile.merge(vec![cell("splice", 1 << 10, 0.5), large(cell("splice", 1 << 10, 2.0))]);
        profile.merge(vec![cell("splice", 1 << 20, 0.5), large(cell("splice", 1 << 20, 2.0))]);
        assert_eq!(profile.cells.len(), 4);
        let both = of_splice(&profile, Some(1 << 15), Load::Idle);
        let ratios: Vec<f64> = both.by_reader.iter().map(|one| one.wall.ratio).collect();
        assert!((ratios[0] - 0.5).abs() < 1e-9 && (ratios[1] - 2.0).abs() < 1e-9, "{ratios:?}");
        assert!((both.wall.ratio - 1.0).abs() < 1e-9);
        assert!(both.wall.lo < 0.5 && both.wall.hi > 2.0);
        assert!(
            both.cited("read-write").ends_with("idle, with readers that read 64K and 1M at a time")
        );
        // A profile with cells of only one reader has no evidence by reader.
        profile.cells.retain(|cell| cell.sink == "pipe");
        let one = of_splice(&profile, Some(1 << 15), Load::Idle);
        assert!(one.by_reader.is_empty() && (one.wall.ratio - 0.5).abs() < 1e-9);
        // A survey of the endpoints replaces the earlier observations of both readers.
        profile.merge(vec![large(cell("splice", 1 << 10, 2.0))]);
        profile.replace(vec![cell("splice", 1 << 20, 0.7)]);
        assert_eq!(profile.cells.len(), 1);
    }

    #[test]
    fn prefer_memory_selects_the_mechanism_that_held_least() {
        let mut profile = Profile::new();
        let mut small = cell("splice", 1 << 10, 1.4);
        (small.tuning, small.memory) = (Tuning::of("pipe", 4096), Some(0));
        let large = Cell { memory: Some(1 << 20), ..cell("splice", 1 << 10, 0.5) };
        profile.merge(vec![small.clone(), large]);
        let known = profile.known(&facts(None), Load::Idle);
        assert_eq!(known.evidence("splice", Prefer::Memory).unwrap().tuning, small.tuning);
        assert!(known.evidence("splice", Prefer::Wall).unwrap().tuning.is_default());
    }
}
