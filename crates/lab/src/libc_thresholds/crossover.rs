//! Finds the sizes at which one loop overtakes another on this machine, which libc's thresholds should match.

use serde::Serialize;
use std::time::Duration;
use thalweg_core::profile::{LIBC, Load, SinkState};
use thalweg_kernels::by_name;
use thalweg_sys::host::Cache;

use super::Measuring;
use crate::trial::tunables::{MOVSB, STREAM};
use thalweg_measure::{
    sample::SampleMetric,
    stats::{Random, RatioVerdict},
    tune_machine::{
        ContestJob, ContestLog, EndKind, EndPair, InProcess, Runner, TunedMethod, WantedMethods,
    },
};

/// The size at which one loop overtakes another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crossover {
    /// The tunable that should have this value.
    pub tunable: &'static str,
    /// The loop for larger sizes.
    pub way: String,
    /// The loop for smaller sizes.
    pub from: String,
    /// The smallest and largest size that were measured.
    pub among: [u64; 2],
    /// The smallest size at which `way` is faster than `from`, and is not slower at any larger size; `None` if no such
    /// size exists.
    pub bytes: Option<u64>,
}

const ROUNDS: usize = 6;
/// Wall time for all sizes together; a machine with larger caches has more sizes.
const BUDGET: Duration = Duration::from_secs(4);
const SMALLEST: u64 = 1 << 10;
const STRING: &str = "rep-movsb";
const PAST: &str = "stream";
/// The vector loops, widest first.
const VECTORS: [&str; 3] = ["avx512", "avx2", "sse2"];

/// Measures both crossovers in this process, with thalweg's own loops.
pub fn measured(caches: &[Cache], how: &Measuring<'_>) -> Result<Vec<Crossover>, String> {
    let runs = |name: &&str| by_name(name).and_then(thalweg_kernels::Kernel::ready).is_some();
    let Some(vector) = VECTORS.into_iter().find(runs) else { return Ok(Vec::new()) };
    let inner = caches.iter().filter(|cache| cache.level <= 2).map(|cache| cache.bytes).max();
    let outer = caches.iter().map(|cache| cache.bytes).max();
    let (Some(inner), Some(outer)) = (inner, outer) else { return Ok(Vec::new()) };
    let ways = [vector, STRING, PAST].into_iter().filter(runs).map(TunedMethod::plain).collect();
    let sizes = sizes(inner, outer);
    let job = ContestJob {
        ends: EndPair { source: EndKind::Memory, sink: EndKind::Memory },
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        sizes,
        ways: WantedMethods::Only(ways),
        rounds: ROUNDS,
        budget: BUDGET,
        seed: how.seed,
        exact: true,
    };
    let log = InProcess.run(&job, how.stop);
    if let Some(why) = log.failed {
        return Err(format!(
            "cannot measure at which size one loop becomes faster than another: {why}"
        ));
    }
    let looked = |tunable, way: &str, from: &str, range: [u64; 2]| {
        let (among, bytes) = overtaken(&log, way, from, range)?;
        let (way, from) = (way.to_owned(), from.to_owned());
        Some(Crossover { tunable, way, from, among, bytes })
    };
    let all = [
        looked(MOVSB, STRING, vector, [SMALLEST, inner]),
        looked(STREAM, PAST, LIBC, [inner, u64::MAX]),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Returns the sizes to measure: half octaves up to the inner caches, then octaves up to twice the outer cache.
fn sizes(inner: u64, outer: u64) -> Vec<u64> {
    let octaves = |from: u64, to: u64| {
        std::iter::successors(Some(from), |size| size.checked_mul(2)).take_while(move |s| *s <= to)
    };
    let halves = octaves(SMALLEST, inner).flat_map(|size| [size, size / 2 * 3]);
    let mut sizes: Vec<u64> = halves.chain(octaves(inner, outer.saturating_mul(2))).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

type SearchStep = ([u64; 2], Option<u64>);

/// Returns the smallest and largest measured size, and the size from which `way` overtakes `from`. `None` if no size in
/// the range has both loops.
fn overtaken(
    log: &ContestLog,
    way: &str,
    from: &str,
    [least, most]: [u64; 2],
) -> Option<SearchStep> {
    let mut words: Vec<(u64, RatioVerdict)> = Vec::new();
    for size in log.sizes.iter().filter(|size| (least..=most).contains(&size.size)) {
        let arm = |name: &str| size.arm(&TunedMethod::plain(name));
        let (Some(own), Some(other)) = (arm(way), arm(from)) else { continue };
        let random = &mut Random::new(size.size);
        let shown = size.log.outcome(own, other, &SampleMetric::Wall, random);
        words.extend(shown.map(|shown| (size.size, shown.word())));
    }
    let among = [words.first()?.0, words.last()?.0];
    Some((among, from_where(&words)))
}

fn from_where(words: &[(u64, RatioVerdict)]) -> Option<u64> {
    let tail = words.iter().rev().take_while(|(_, word)| *word != RatioVerdict::Slower);
    let tail: Vec<&(u64, RatioVerdict)> = tail.collect();
    // The result is the smallest size at which the loop is faster. At smaller sizes without a difference, the other
    // loop can stay.
    let faster = tail.iter().filter(|(_, word)| *word == RatioVerdict::Faster);
    faster.map(|(size, _)| *size).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use RatioVerdict::{Faster, NoDifferenceShown as Same, Slower};

    #[test]
    fn a_way_takes_over_where_it_is_faster_and_never_slower_again() {
        let of = |words: &[RatioVerdict]| {
            let words: Vec<(u64, RatioVerdict)> =
                words.iter().enumerate().map(|(n, word)| (1 << n, *word)).collect();
            from_where(&words)
        };
        assert_eq!(of(&[Slower, Same, Faster, Same, Faster]), Some(4));
        assert_eq!(of(&[Faster, Slower, Faster]), Some(4));
        assert_eq!(of(&[Faster, Faster, Slower]), None);
        assert_eq!(of(&[Slower, Same, Same]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn sizes_rise_to_twice_the_last_cache() {
        let sizes = sizes(1 << 20, 32 << 20);
        assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
        assert_eq!((sizes.first(), sizes.last()), (Some(&1024), Some(&(64 << 20))));
        assert!(sizes.contains(&(24 << 10)) && !sizes.contains(&(3 << 20)));
    }
}
