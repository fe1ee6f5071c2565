//! Chooses the kernel that begins a band (a range of sizes that share one kernel), and the length of the band.

use super::Band;
use crate::{
    Judgement, Prefer, Unfit, Verdict,
    profile::{Cell, Evidence, LIBC, MatchingCells, Ratio, SHORT},
    select::{Candidate, GIVEN_UP_FOR_SAFETY, Prior, rank},
};

/// The kernels measured at one size, the C library's among them.
pub(super) struct AtSize<'c> {
    pub bytes: u64,
    prefer: Prefer,
    points: Vec<KernelEvidence<'c>>,
    /// Measurements between uncached memory, if there are any.
    cold: Vec<KernelEvidence<'c>>,
    /// Measurements of copies of one repeated size, at this and other sizes.
    repeated: Vec<KernelEvidence<'c>>,
    /// Indices in `points` of the kernels that may begin a band here, fastest first: the chosen kernel and those within
    /// the noise of the best. Only the C library if no kernel is surely faster than it.
    best: Vec<usize>,
    /// Indices of the kernels that are surely faster than the C library, fastest first.
    faster: Vec<usize>,
}

/// Additional measurements at a size.
pub(super) struct Beside<'c> {
    /// Measurements between uncached memory.
    pub cold: Vec<&'c Cell>,
    /// Measurements of one repeated size, for the sizes above the previous size and up to this one, in rising order.
    pub repeated: Vec<&'c Cell>,
}

/// The evidence for a kernel at one size. This module calls it a point.
struct KernelEvidence<'c> {
    kernel: &'c str,
    evidence: Evidence,
}

impl<'c> AtSize<'c> {
    /// Creates the entry of one size from its cells (measurements); `None` if the C library was not measured.
    pub fn of(cells: &[&'c Cell], beside: &Beside<'c>, prefer: Prefer) -> Option<Self> {
        let bytes = cells.first()?.size;
        // Kernels use no private memory, so `Prefer::Memory` has no meaning here.
        let prefer = if prefer == Prefer::Cpu { prefer } else { Prefer::Wall };
        let points = points_of(cells, bytes, prefer)?;
        let cold = points_of(&beside.cold, bytes, prefer).unwrap_or_default();
        let repeated = beside.repeated.chunk_by(|a, b| a.size == b.size);
        let repeated = repeated.filter_map(|cells| points_of(cells, cells.first()?.size, prefer));
        let repeated = repeated.flatten().collect();
        let (best, faster) = (Vec::new(), Vec::new());
        let mut own = Self { bytes, prefer, points, cold, repeated, best, faster };
        own.faster = own.find_faster();
        own.best = own.find_best();
        Some(own)
    }

    fn may_begin(&self) -> impl Iterator<Item = &KernelEvidence<'c>> {
        self.best.iter().filter_map(|n| self.points.get(*n))
    }

    fn faster(&self) -> impl Iterator<Item = &KernelEvidence<'c>> {
        self.faster.iter().filter_map(|n| self.points.get(*n))
    }

    /// Returns the evidence for a kernel if a band that began at a smaller size may continue here. It may if the kernel
    /// could also begin a band here. If only the C library could begin one, the kernel must not lose to the C library.
    fn may_go_on(&self, kernel: &str) -> Option<&KernelEvidence<'c>> {
        let same = self.may_begin().find(|point| point.kernel == kernel);
        let nobody = self.may_begin().all(|point| point.kernel == LIBC);
        same.or_else(|| if nobody { self.as_good(kernel) } else { None })
    }

    /// Returns the point of this kernel, unless it loses to the C library here.
    fn as_good(&self, kernel: &str) -> Option<&KernelEvidence<'c>> {
        let own = self.points.iter().find(|point| point.kernel == kernel);
        own.filter(|point| !point.loses(self.prefer) && !self.loses_beside(point))
    }

    /// Returns `true` if the kernel loses to the C library with uncached memory or with a repeated size.
    fn loses_beside(&self, point: &KernelEvidence<'_>) -> bool {
        self.loses_cold(point.kernel) || self.loses_repeated(point)
    }

    fn loses_cold(&self, kernel: &str) -> bool {
        let cold = self.cold.iter().find(|point| point.kernel == kernel);
        cold.is_some_and(|point| point.loses(self.prefer))
    }

    /// Returns `true` if the kernel's loss with a repeated size exceeds its gain with mixed sizes, or exceeds
    /// [`GIVEN_UP_FOR_SAFETY`].
    fn loses_repeated(&self, point: &KernelEvidence<'_>) -> bool {
        let same = self.repeated.iter().filter(|repeated| repeated.kernel == point.kernel);
        let worst = same.map(|same| same.evidence.score(self.prefer)).max_by(f64::total_cmp);
        let most = 1.0 + GIVEN_UP_FOR_SAFETY;
        worst.is_some_and(|it| it > most || it * point.evidence.score(self.prefer) > 1.0)
    }

    fn band(&self, point: &KernelEvidence<'_>) -> Band {
        Band {
            upto: self.bytes,
            extrapolated: false,
            kernel: point.kernel.to_owned(),
            ratio: *point.evidence.counted(self.prefer),
            sessions: point.evidence.sessions,
            at: point.evidence.at.clone(),
        }
    }
}

impl KernelEvidence<'_> {
    /// Returns `true` if the kernel is shown to be slower than the C library, or its ratio exceeds 1 by more than the
    /// noise. The tolerated noise is at most [`GIVEN_UP_FOR_SAFETY`].
    fn loses(&self, prefer: Prefer) -> bool {
        self.evidence.counted(prefer).lo > 1.0
            || !self.evidence.ties_with(1.0, prefer, GIVEN_UP_FOR_SAFETY)
    }
}

/// Returns the points of all kernels in these cells. The C library's is first, as it is the safest. `None` if the C
/// library was not measured.
fn points_of<'c>(
    cells: &[&'c Cell],
    bytes: u64,
    prefer: Prefer,
) -> Option<Vec<KernelEvidence<'c>>> {
    let known = MatchingCells::among(cells.iter().copied(), Some(bytes));
    let point = |kernel: &'c str| {
        known.evidence(kernel, prefer).map(|evidence| KernelEvidence { kernel, evidence })
    };
    let others = cells.iter().map(|cell| &*cell.mechanism).filter(|kernel| *kernel != LIBC);
    let mut points = vec![point(LIBC)?];
    points.extend(others.filter_map(point));
    Some(points)
}

impl AtSize<'_> {
    /// Returns the indices in `points` of the kernels that are surely faster than the C library, and do not lose with
    /// uncached memory or a repeated size, best first. No other kernel begins a band, because bands must never make
    /// a copy slower than the C library.
    fn find_faster(&self) -> Vec<usize> {
        let prefer = self.prefer;
        let surely =
            |e: &Evidence| e.counted(prefer).hi < 1.0 && e.score(prefer) * (1.0 + e.noise) < 1.0;
        let is_fit =
            |point: &KernelEvidence<'_>| surely(&point.evidence) && !self.loses_beside(point);
        let fit = self.points.iter().enumerate().skip(1).filter(|(_, point)| is_fit(point));
        self.by_score(fit.map(|(n, _)| n).collect())
    }

    fn by_score(&self, mut of: Vec<usize>) -> Vec<usize> {
        let score = |n: &usize| {
            self.points.get(*n).map_or(f64::INFINITY, |p| p.evidence.score(self.prefer))
        };
        of.sort_by(|a, b| score(a).total_cmp(&score(b)));
        of
    }

    /// Returns the indices in `points` of the kernels that may begin a band here, best first. `points[0]` must be the
    /// C library's.
    fn find_best(&self) -> Vec<usize> {
        let (points, prefer) = (&self.points, self.prefer);
        let candidate = |(name, point): (usize, &KernelEvidence<'_>)| {
            let is_fit = name == 0 || self.faster.contains(&name);
            let why = "not shown to be faster than the C library";
            let fits = if is_fit { Ok(()) } else { Err(Unfit::because(why)) };
            Candidate { name, fits, prior: Prior::NONE, evidence: Some(point.evidence.clone()) }
        };
        let verdicts = rank(points.iter().enumerate().map(candidate).collect(), prefer);
        let is_libc_chosen = verdicts.first().is_some_and(|verdict| verdict.mechanism == 0);
        let measured = verdicts.iter().filter(|verdict| verdict.judgement.is_usable());
        let scores = measured.filter_map(|verdict| Some(verdict.evidence.as_ref()?.score(prefer)));
        let least = scores.min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
        // Compares medians within the noise. An interval that overlaps the best one's is not enough.
        let is_near = |evidence: &Evidence| evidence.ties_with(least, prefer, f64::MAX);
        let is_as_good = |verdict: &&Verdict<usize>| {
            let is_chosen = matches!(verdict.judgement, Judgement::Chosen { .. });
            let is_usable = verdict.judgement.is_usable();
            (is_chosen || is_usable && verdict.evidence.as_ref().is_some_and(is_near))
                && (verdict.mechanism == 0) == is_libc_chosen
        };
        self.by_score(verdicts.iter().filter(is_as_good).map(|v| v.mechanism).collect())
    }
}

/// Returns the middle of two sizes on a logarithmic scale, rounded down to a sixteenth of its octave, as the
/// measurements are not more precise.
pub(super) fn halfway(lower: u64, upper: u64) -> u64 {
    let middle = ((lower as f64).sqrt() * (upper as f64).sqrt()) as u64;
    let sixteenth = (1 << middle.max(1).ilog2()) / 16;
    (middle - middle % sixteenth.max(1)).max(lower)
}

/// Returns the longest band that may begin at the first of these sizes, and the sizes after it. If several bands are
/// equally long, returns that of the best kernel at the first size.
///
/// All short sizes share one kernel, because a choice between several would be an unpredictable branch. The kernel is
/// chosen by the measurements at the largest short size. It must not lose to the C library at any short size.
///
/// If every kernel loses at some short size, the C library serves all short sizes except the largest. At the largest
/// short size, another kernel may begin a band. A further branch among short sizes would cost more than a faster kernel
/// saves.
pub(super) fn longest<'s, 'c>(sizes: &'s [AtSize<'c>]) -> Option<(Band, &'s [AtSize<'c>])> {
    let short = sizes.iter().take_while(|size| size.bytes <= SHORT).count();
    let largest = short.saturating_sub(1);
    let points = from(sizes, largest, AtSize::may_begin)
        .or_else(|| from(sizes, largest, AtSize::faster))
        .or_else(|| by_libc(sizes, largest))?;
    let mut bands = sizes.iter().zip(&points).map(|(size, point)| size.band(point));
    let mut band = bands.next()?;
    bands.for_each(|later| band.take_in(later));
    Some((band, &sizes[points.len()..]))
}

/// Returns the points of the longest band among the kernels that `may` returns for the size with the index `chosen`.
/// The band begins at the first size. If several bands are equally long, the first is returned.
fn from<'s, 'c: 's, I: Iterator<Item = &'s KernelEvidence<'c>>>(
    sizes: &'s [AtSize<'c>],
    chosen: usize,
    may: impl Fn(&'s AtSize<'c>) -> I,
) -> Option<Vec<&'s KernelEvidence<'c>>> {
    let (smaller, rest) = sizes.split_at_checked(chosen)?;
    let (here, larger) = rest.split_first()?;
    let mut best: Option<Vec<&KernelEvidence<'c>>> = None;
    for point in may(here) {
        let below = smaller.iter().map_while(|size| size.as_good(point.kernel));
        let mut points: Vec<&KernelEvidence<'c>> = below.collect();
        if points.len() == chosen {
            points.push(point);
            points.extend(larger.iter().map_while(|size| size.may_go_on(point.kernel)));
            if best.as_ref().is_none_or(|best| points.len() > best.len()) {
                best = Some(points);
            }
        }
    }
    best
}

/// Returns the C library's points at the first `count` sizes, and as long as its band may continue after them.
fn by_libc<'s, 'c>(sizes: &'s [AtSize<'c>], count: usize) -> Option<Vec<&'s KernelEvidence<'c>>> {
    let (own, others) = sizes.split_at_checked(count)?;
    let own = own.iter().filter_map(|size| size.points.first());
    Some(own.chain(others.iter().map_while(|size| size.may_go_on(LIBC))).collect())
}

/// Makes the C library serve the band with the smallest gain, and merges neighbouring bands with the same kernel.
pub(super) fn give_up_least(bands: &mut Vec<Band>) {
    let gains = |band: &Band| band.kernel != LIBC;
    let least = bands.iter_mut().filter(|band| gains(band));
    let Some(least) = least.max_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio)) else {
        bands.truncate(1);
        return;
    };
    (least.kernel, least.ratio) = (LIBC.to_owned(), Ratio::ONE);
    bands.dedup_by(|later, band| {
        let same = later.kernel == band.kernel;
        if same {
            band.upto = later.upto;
            band.sessions = band.sessions.min(later.sessions);
        }
        same
    });
}
