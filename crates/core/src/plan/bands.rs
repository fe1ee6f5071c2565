//! Plans by size band, for callers that move many objects between the same kinds of endpoints. All sizes for which the
//! planner orders the mechanisms equally (the same ladder) share one plan.

use std::{ops::RangeInclusive, sync::Arc};

use super::{Plan, Request};
use crate::{
    Facts, Profile,
    profile::{Cell, Evidence, LEAST_NOISE},
    select::GIVEN_UP_FOR_SAFETY,
};

/// The plans made so far, each with the sizes for which it is valid. Every call of [`at`](Self::at) must use the same
/// endpoints, request and profile.
#[derive(Debug, Default)]
pub struct SizeBands(Vec<(RangeInclusive<u64>, Arc<Plan>)>);

// Maximum number of plans. If it is exceeded, because many sizes cannot share a plan, all plans are dropped.
const MOST: usize = 1024;

impl SizeBands {
    /// Returns the plan of the band that contains `len`. Its ladder is the one that [`Plan::make`] returns for this
    /// size. Its evidence is that of the first size requested in the band.
    pub fn at(
        &mut self,
        len: u64,
        facts: impl FnOnce() -> Facts,
        request: &Request,
        profile: Option<&Profile>,
    ) -> Arc<Plan> {
        if let Some((_, plan)) = self.0.iter().find(|(band, _)| band.contains(&len)) {
            return Arc::clone(plan);
        }
        let facts = Facts { len: Some(len), ..facts() };
        let plan = Arc::new(Plan::make(&facts, request, profile));
        // A plan with turns contains the length of the whole transfer, so it holds for one size only.
        let band =
            if plan.turns.is_some() { len..=len } else { band(len, &facts, request, profile) };
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.push((band, Arc::clone(&plan)));
        plan
    }
}

/// Returns all bands from this size on, each with its last size. Neighbouring bands with the same ladder are merged.
pub fn bands(
    mut from: u64,
    facts: &Facts,
    request: &Request,
    profile: Option<&Profile>,
) -> Vec<(u64, Arc<Plan>)> {
    let (mut kept, mut all) = (SizeBands::default(), Vec::<(u64, Arc<Plan>)>::new());
    // If mechanisms take turns, each size is a separate band, so the number of bands must be limited.
    for _ in 0..MOST {
        let plan = kept.at(from, || facts.clone(), request, profile);
        let last = kept.0.pop().map_or(u64::MAX, |(band, _)| *band.end());
        match all.last_mut() {
            Some((upto, before)) if before.same_ladder(&plan) => *upto = last,
            _ => all.push((last, plan)),
        }
        if last == u64::MAX {
            break;
        }
        from = last + 1;
    }
    all
}

/// Returns the sizes around this one for which every comparison of measurements has the same result. A corner is a size
/// at which the evidence changes. Between two corners, each interpolated ratio is a straight line on a logarithmic
/// scale, so each comparison changes at most once.
fn band(
    len: u64,
    facts: &Facts,
    request: &Request,
    profile: Option<&Profile>,
) -> RangeInclusive<u64> {
    let Some(profile) = profile else { return 0..=u64::MAX };
    let of_ends = profile.cells.iter().filter(|cell| cell.speaks_of(facts));
    let corners: Vec<u64> = of_ends.flat_map(Cell::corners).collect();
    let first = corners.iter().filter(|corner| **corner < len).max().map_or(0, |corner| corner + 1);
    let last = corners.iter().filter(|corner| **corner >= len).min().copied().unwrap_or(u64::MAX);
    let compared = |size: u64| {
        let facts = Facts { len: Some(size), ..facts.clone() };
        let known = profile.known(&facts, request.load);
        let lines: Vec<Evidence> = known.lines().collect();
        let pairs = lines.iter().flat_map(|a| lines.iter().map(move |b| (a, b)));
        pairs.map(|(a, b)| compare(a, b, request)).collect::<Vec<_>>()
    };
    let here = compared(len);
    let is_as_here = |size: u64| compared(size) == here;
    edge(len, first, &is_as_here)..=edge(len, last, &is_as_here)
}

/// Returns the results of all comparisons that the choice makes between two candidates.
fn compare(a: &Evidence, b: &Evidence, request: &Request) -> [bool; 5] {
    let (own, other) = (a.score(request.prefer), b.score(request.prefer));
    [
        own <= other,
        own <= other * (1.0 + LEAST_NOISE),
        a.ties_with(other, request.prefer, GIVEN_UP_FOR_SAFETY),
        a.wall.ratio <= b.wall.ratio,
        a.cpu.ratio <= b.cpu.ratio,
    ]
}

/// Returns the last size between `is` and `end` for which the predicate holds, by bisection.
fn edge(mut is: u64, end: u64, is_so: &dyn Fn(u64) -> bool) -> u64 {
    if is_so(end) {
        return end;
    }
    let mut is_not = end;
    while is.abs_diff(is_not) > 1 {
        let middle = is.midpoint(is_not);
        if is_so(middle) { is = middle } else { is_not = middle }
    }
    is
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        EndFacts, Guarantees, Kind, Prefer, Tuning,
        profile::{LARGE_READS, cell::tests::cell},
    };

    fn facts() -> Facts {
        let end = |kind| EndFacts { kind, addressed: false, ..EndFacts::MEMORY };
        let (source, sink) = (end(Kind::Pipe), end(Kind::Pipe));
        Facts { source, sink, len: None, needs: Guarantees::COPIED }
    }

    fn cells() -> impl Strategy<Value = Vec<Cell>> {
        let names =
            prop::sample::select(vec!["read-write", "splice", "io-uring", "splice-threaded"]);
        let odd = (prop::bool::weighted(0.1), prop::bool::weighted(0.3));
        let one = (names, 0..3_u64, 4..28_u32, 1..40_u32, odd);
        let one = one.prop_map(|(name, pipe, size, ratio, (provisional, large))| Cell {
            sink: if large { format!("pipe{LARGE_READS}") } else { "pipe".to_owned() },
            tuning: if pipe == 0 { Tuning::default() } else { Tuning::of("pipe", pipe << 16) },
            provisional,
            ..cell(name, (1 << size) + u64::from(ratio), f64::from(ratio) / 10.0)
        });
        prop::collection::vec(one, 0..24)
    }

    fn ladder(plan: &Plan) -> Vec<(&'static str, Tuning)> {
        plan.ladder().into_iter().map(|(step, tuning)| (step.info().name, tuning)).collect()
    }

    proptest! {
        #[test]
        fn the_ladder_of_a_band_is_that_of_every_size_in_it(
            cells in cells(),
            lens in prop::collection::vec(prop_oneof![0..1_u64 << 28, 0..1_u64 << 18], 40),
            prefer in prop::sample::select(vec![Prefer::Wall, Prefer::Cpu, Prefer::Memory]),
        ) {
            let mut profile = Profile::new();
            profile.merge(cells);
            let request = Request { prefer, ..Request::default() };
            let mut bands = SizeBands::default();
            let edges = |bands: &SizeBands| -> Vec<u64> {
                bands.0.iter().flat_map(|(band, _)| [*band.start(), *band.end()]).collect()
            };
            let mut sizes = lens;
            for round in 0..2 {
                for len in &sizes {
                    let kept = bands.at(*len, facts, &request, Some(&profile));
                    let facts = Facts { len: Some(*len), ..facts() };
                    let made = Plan::make(&facts, &request, Some(&profile));
                    prop_assert_eq!(ladder(&kept), ladder(&made), "{} in round {}", len, round);
                }
                // The second round examines the sizes at which one band ends and the next begins.
                sizes = edges(&bands);
            }
        }
    }

    #[test]
    fn the_bands_of_all_sizes_follow_each_other_and_differ() {
        let mut profile = Profile::new();
        let at = |name, size: u64, ratio| cell(name, size, ratio);
        for (size, ratio) in [(1 << 12, 2.0), (1 << 20, 0.5)] {
            profile.merge(vec![at("read-write", size, 1.0), at("splice", size, ratio)]);
        }
        let request = Request::default();
        let all = bands(1, &facts(), &request, Some(&profile));
        let first = |(_, plan): &(u64, Arc<Plan>)| plan.chosen().map(|chosen| chosen.mechanism);
        assert_eq!(all.iter().map(first).collect::<Vec<_>>(), [Some("read-write"), Some("splice")]);
        assert!((1 << 12..1 << 20).contains(&all[0].0) && all[1].0 == u64::MAX);
        let chosen = |len: u64| {
            let facts = Facts { len: Some(len), ..facts() };
            Plan::make(&facts, &request, Some(&profile)).chosen().map(|chosen| chosen.mechanism)
        };
        assert_eq!((chosen(all[0].0), chosen(all[0].0 + 1)), (first(&all[0]), first(&all[1])));
        assert_eq!(bands(1, &facts(), &request, None).len(), 1);
    }

    #[test]
    fn where_nothing_was_measured_one_plan_is_for_all_sizes() {
        let mut bands = SizeBands::default();
        let profile = Profile::new();
        for profile in [None, Some(&profile)] {
            for len in [0, 1, 5000, 1 << 40, u64::MAX] {
                bands.at(len, facts, &Request::default(), profile);
            }
        }
        assert_eq!(bands.0.len(), 1);
    }
}
