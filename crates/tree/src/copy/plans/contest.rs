//! Measures which method copies small files faster: read and write, or a mechanism that keeps the bytes in the kernel.
//! A profile cannot contain this result, because the cost of opening both files is part of it. The copy therefore times
//! some of its own files, alternating between both methods. It then applies the rule by which thalweg selects any
//! mechanism, and uses the selected method for files of about that size. If files can be cloned, nothing is timed.
//!
//! The result is not stored for the next run, because a new measurement costs little: the slower method copies a few
//! hundred files.

use rustix::fs::Stat;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use thalweg_core::{
    Blocks, End, EndFacts, Facts, Kind, Plan, Prefer,
    mechanisms::{LAST_RESORT, by_name, cloner},
    profile::{Evidence, Ratio},
    select::{Candidate, Prior},
};
use thalweg_sys::host::filesystem;

use crate::{
    CopyOptions,
    copy::plans::pair::{DevicePair, DevicePairs, Devices},
    identity::size,
    threads::locked,
};

/// Measurements shared by all workers of a copy. They are discarded when the pair of file systems changes.
#[derive(Debug, Default)]
pub(crate) struct Contests {
    seen: AtomicU32,
    state: Mutex<ContestState>,
}

/// A worker's cached decisions. A worker that finds a decision here need not lock [`Contests`].
#[derive(Debug, Default)]
pub(crate) struct MethodCache {
    is_awake: bool,
    devices: Devices,
    classes: [ClassMethod; CLASSES],
}

/// The method for files of one size class.
#[derive(Clone, Debug, Default)]
enum ClassMethod {
    /// Not decided yet.
    #[default]
    Open,
    /// Read and write, without further measurements.
    Plain,
    /// The mechanism of this plan.
    Planned(Arc<PlannedMethod>),
}

#[derive(Debug, Default)]
struct ContestState {
    devices: Devices,
    rival: Option<RivalMethod>,
    clones: Clones,
    classes: [SizeClass; CLASSES],
}

/// A plan for one file, as an alternative to read and write.
#[derive(Clone, Debug)]
pub(crate) struct PlannedMethod {
    pub plan: Arc<Plan>,
    pub pair: Option<Arc<DevicePair>>,
}

/// The mechanism that is compared with read and write.
#[derive(Debug)]
struct RivalMethod {
    name: &'static str,
    planned: PlannedMethod,
}

/// Support for clones on this pair of file systems. If they work, nothing is timed, because a clone costs least.
#[derive(Debug, Default)]
enum Clones {
    /// Cloning is not supported or not allowed.
    #[default]
    None,
    /// The next file tries this plan.
    Untried(PlannedMethod),
    /// Cloning works. The rival mechanism then clones too, because it lets the file system choose.
    Work,
}

/// Source and destination of a small file.
pub(crate) struct SmallFileEnds<'a> {
    pub source: &'a OwnedFd,
    pub stat: &'a Stat,
    pub dir: BorrowedFd<'a>,
    /// The device of `dir`.
    pub device: u64,
}

/// Number of files that are copied before the copy queries facts about the file systems. A small copy needs no facts.
const PRELUDE: u32 = 32;
/// Number of files before a comparison starts. In a smaller tree the result would come too late to be useful.
const LARGE: u32 = 1000;
// Number of size classes, which are decided separately because the cost of each mechanism grows differently with size.
// Sizes with an equal number of hexadecimal digits form a class.
const CLASSES: usize = 16;

/// Measurements of one size class, or the decision for it.
#[derive(Clone, Debug)]
enum SizeClass {
    /// Still measuring: samples of read and write, and of the rival.
    Open([CostSamples; 2]),
    /// The chosen plan; `None` means read and write.
    Decided(Option<Arc<Plan>>),
}

#[derive(Clone, Copy, Debug, Default)]
struct CostSamples {
    count: u32,
    /// Sum of the logarithms of the costs. Logarithms limit the influence of a single interrupted copy.
    sum: f64,
}

impl Default for SizeClass {
    fn default() -> Self {
        Self::Open([CostSamples::default(); 2])
    }
}

/// Number of samples of each method. Samples scatter by about a third, so the error of the mean is about 3 %.
const SAMPLES: u32 = 128;
// The cost of a file is its time divided by (size + CALL), so that files of different sizes can be compared. CALL
// stands for the fixed cost of a file, which is about the cost of copying one page.
const CALL: f64 = 4096.0;

impl Contests {
    /// Returns the plan for the next file; `None` means read and write.
    pub fn plan(
        &self,
        known: &mut MethodCache,
        places: &SmallFileEnds<'_>,
        options: &CopyOptions,
        pairs: &DevicePairs,
    ) -> Option<Arc<PlannedMethod>> {
        let stat = places.stat;
        // Across file systems no other mechanism is cheaper, and a file that reports size 0 may not be empty.
        if stat.st_dev != places.device || stat.st_size == 0 {
            return None;
        }
        let mut seen = LARGE;
        if !known.is_awake {
            seen = self.seen.fetch_add(1, Ordering::Relaxed);
            if seen < PRELUDE {
                return None;
            }
            known.is_awake = seen >= LARGE;
        }
        let devices = Devices { source: stat.st_dev, sink: places.device };
        if known.devices != devices {
            *known = MethodCache { is_awake: known.is_awake, devices, ..MethodCache::default() };
        }
        let way = &mut known.classes[class(size(stat))];
        if let ClassMethod::Open = way {
            let mut state = locked(&self.state);
            if state.devices != devices {
                *state = ContestState { devices, ..ContestState::default() };
                (state.rival, state.clones) = rivals(places, options, pairs);
            }
            let (settled, next) = state.way(class(size(stat)), seen >= LARGE);
            if let Some(settled) = settled {
                *way = settled;
            } else {
                return next;
            }
        }
        match way {
            ClassMethod::Planned(planned) => Some(Arc::clone(planned)),
            ClassMethod::Open | ClassMethod::Plain => None,
        }
    }

    /// Returns `true` if files of this size are still timed.
    pub fn is_open(&self, known: &MethodCache, size: u64) -> bool {
        known.is_awake && matches!(known.classes[class(size)], ClassMethod::Open) && {
            let state = locked(&self.state);
            state.rival.is_some()
                && matches!(state.clones, Clones::None)
                && matches!(state.classes[class(size)], SizeClass::Open(_))
        }
    }

    /// Records the time of one file.
    pub fn note(&self, is_planned: bool, size: u64, took: Duration) {
        locked(&self.state).note(is_planned, size, took);
    }

    /// Records that the driver fell back from this mechanism. If it is the rival, the comparison ends.
    pub fn left(&self, known: &mut MethodCache, mechanism: &str) {
        let mut state = locked(&self.state);
        if cloner().is_some_and(|cloner| cloner.info().name == mechanism) {
            state.clones = Clones::None;
        }
        if state.rival.as_ref().is_some_and(|rival| rival.name == mechanism) {
            (state.rival, state.clones) = (None, Clones::None);
        }
        known.classes = Default::default();
    }

    /// Records that a file was cloned.
    pub fn cloned(&self) {
        let mut state = locked(&self.state);
        if matches!(state.clones, Clones::Untried(_)) {
            state.clones = Clones::Work;
        }
    }
}

impl ContestState {
    /// Returns the method for all further files of a class, if it is decided, otherwise the plan for the next file.
    fn way(
        &self,
        class: usize,
        may_compare: bool,
    ) -> (Option<ClassMethod>, Option<Arc<PlannedMethod>>) {
        let Some(rival) = &self.rival else { return (Some(ClassMethod::Plain), None) };
        let own = |plan: &Arc<Plan>| {
            // Each worker gets its own copy: the reference count of a shared plan would be contended between cores.
            let plan = Arc::new(Plan::clone(plan));
            Arc::new(PlannedMethod { plan, pair: rival.planned.pair.clone() })
        };
        match (&self.clones, &self.classes[class]) {
            (Clones::Untried(planned), _) => (None, Some(Arc::new(planned.clone()))),
            (Clones::Work, _) => (Some(ClassMethod::Planned(own(&rival.planned.plan))), None),
            (Clones::None, SizeClass::Open(_)) if !may_compare => (None, None),
            (Clones::None, SizeClass::Open([plain, kernel])) => {
                let is_turn = kernel.count < plain.count;
                (None, is_turn.then(|| Arc::new(rival.planned.clone())))
            }
            (Clones::None, SizeClass::Decided(None)) => (Some(ClassMethod::Plain), None),
            (Clones::None, SizeClass::Decided(Some(plan))) => {
                (Some(ClassMethod::Planned(own(plan))), None)
            }
        }
    }

    fn note(&mut self, is_planned: bool, size: u64, took: Duration) {
        let (Some(rival), class) = (&self.rival, &mut self.classes[class(size)]) else { return };
        let SizeClass::Open(samples) = class else { return };
        let own = &mut samples[usize::from(is_planned)];
        let cost = took.as_nanos().max(1) as f64 / (size as f64 + CALL);
        *own = CostSamples { count: own.count + 1, sum: own.sum + cost.ln() };
        let [plain, kernel] = *samples;
        if plain.count >= SAMPLES && kernel.count >= SAMPLES {
            let ratio =
                (kernel.sum / f64::from(kernel.count) - plain.sum / f64::from(plain.count)).exp();
            let plan = decide(rival.name, ratio);
            let is_plain =
                plan.chosen().is_none_or(|chosen| chosen.mechanism == LAST_RESORT.info().name);
            *class = SizeClass::Decided((!is_plain).then(|| Arc::new(plan)));
        }
    }
}

/// Returns the rival of read and write on this pair of file systems. The rival is the first usable mechanism that lets
/// the file system choose how blocks are copied. Also returns whether cloning is worth trying.
fn rivals(
    places: &SmallFileEnds<'_>,
    options: &CopyOptions,
    pairs: &DevicePairs,
) -> (Option<RivalMethod>, Clones) {
    let nothing = (None, Clones::None);
    let Ok(fs) = filesystem(places.dir) else { return nothing };
    // On these file systems the reported size may be wrong, but the rival copies exactly the reported size.
    if fs.remote || fs.name.starts_with("fuse") || fs.name == "overlay" {
        return nothing;
    }
    let facts = || {
        let source = End { fd: places.source.as_fd(), kind: Kind::File, at: Some(0) };
        let sink = EndFacts { kind: Kind::File, fs: Some(fs), ..EndFacts::MEMORY };
        Facts { source: EndFacts::of(&source), sink, len: None, needs: options.needs }
    };
    let pair = pairs.of(Devices { source: places.stat.st_dev, sink: places.device }, facts);
    let plan = pair.plan(options, options.needs, Some(size(places.stat)));
    let leaves_it =
        |name: &str| by_name(name).is_some_and(|m| m.info().nature.blocks == Blocks::MayShare);
    let usable = || {
        let usable = plan.verdicts.iter().filter(|verdict| verdict.judgement.is_usable());
        usable.map(|verdict| verdict.mechanism)
    };
    let Some(name) = usable().find(|name| leaves_it(name)) else { return nothing };
    let planned = |names: &[&'static str]| {
        let names = names.iter().chain([&LAST_RESORT.info().name]);
        let candidates = names.map(|name| candidate(name, None)).collect();
        let plan = Arc::new(Plan::of(candidates, Prefer::Wall));
        PlannedMethod { plan, pair: Some(Arc::clone(&pair)) }
    };
    let cloner = cloner().map(|cloner| cloner.info().name);
    let clones = match cloner.filter(|cloner| usable().any(|name| name == *cloner)) {
        Some(cloner) => Clones::Untried(planned(&[cloner, name])),
        None => Clones::None,
    };
    (Some(RivalMethod { name, planned: planned(&[name]) }), clones)
}

/// Returns the plan for a measured `ratio`, which is the cost of the rival divided by that of read and write.
fn decide(rival: &'static str, ratio: f64) -> Plan {
    let plain = candidate(LAST_RESORT.info().name, Some(1.0));
    Plan::of(vec![plain, candidate(rival, Some(ratio))], Prefer::Wall)
}

fn candidate(name: &'static str, ratio: Option<f64>) -> Candidate {
    let evidence = ratio.map(|ratio| {
        let wall = Ratio { ratio, lo: ratio, hi: ratio };
        Evidence::of_this_run(wall, Ratio::ONE, SAMPLES)
    });
    Candidate { name, fits: Ok(()), prior: Prior::NONE, evidence }
}

fn class(size: u64) -> usize {
    size.max(1).ilog2() as usize / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::When;
    use std::fs::File;
    use thalweg_core::MECHANISMS;

    fn rival() -> RivalMethod {
        let leaves_it =
            |name: &&str| by_name(name).is_some_and(|m| m.info().nature.blocks == Blocks::MayShare);
        let name = MECHANISMS.iter().map(|m| m.info().name).find(leaves_it).unwrap();
        RivalMethod {
            name,
            planned: PlannedMethod { plan: Arc::new(decide(name, 1.0)), pair: None },
        }
    }

    fn contests(state: ContestState) -> Contests {
        Contests { seen: AtomicU32::new(LARGE), state: Mutex::new(state) }
    }

    const AWAKE: fn() -> MethodCache = || MethodCache { is_awake: true, ..MethodCache::default() };

    /// Returns `true` if the rival is chosen for files of 1,000 bytes, given the times in nanoseconds.
    fn after(kernel: u64, plain: u64) -> bool {
        let contests = contests(ContestState { rival: Some(rival()), ..ContestState::default() });
        for n in 0..SAMPLES {
            assert!(contests.is_open(&AWAKE(), 1000));
            let jitter = u64::from(n % 7) * 100;
            contests.note(false, 1000, Duration::from_nanos(plain + jitter));
            contests.note(true, 1000, Duration::from_nanos(kernel + jitter));
        }
        assert!(!contests.is_open(&AWAKE(), 1000) && contests.is_open(&AWAKE(), 100_000));
        let (settled, next) = locked(&contests.state).way(class(1000), true);
        assert!(next.is_none());
        match settled.expect("all samples are there") {
            ClassMethod::Planned(planned) => {
                assert_eq!(planned.plan.ladder()[0].0.info().name, rival().name);
                true
            }
            ClassMethod::Plain => false,
            ClassMethod::Open => panic!("decided"),
        }
    }

    #[test]
    fn the_rival_wins_only_by_more_than_noise() {
        assert!(after(4000, 5000));
        assert!(!after(5000, 4000));
        assert!(!after(4950, 5000));
    }

    #[test]
    fn there_is_no_contest_where_a_file_could_be_cloned() {
        let clones = Clones::Untried(rival().planned);
        let contests =
            contests(ContestState { rival: Some(rival()), clones, ..ContestState::default() });
        let goes = |contests: &Contests| locked(&contests.state).way(class(1000), false);
        assert!(matches!(goes(&contests), (None, Some(_))), "the next file finds out");
        assert!(!contests.is_open(&AWAKE(), 1000));
        contests.cloned();
        assert!(matches!(goes(&contests), (Some(ClassMethod::Planned(_)), None)));
        assert!(!contests.is_open(&AWAKE(), 1000));
        // If the rival fails for a file, the copy also stops trying clones.
        contests.left(&mut AWAKE(), rival().name);
        assert!(matches!(goes(&contests), (Some(ClassMethod::Plain), None)));
    }

    #[test]
    fn there_is_no_contest_before_the_tree_is_known_to_be_large() {
        let contests = contests(ContestState { rival: Some(rival()), ..ContestState::default() });
        contests.note(false, 1000, Duration::from_nanos(1));
        let next = |is_large| locked(&contests.state).way(class(1000), is_large);
        assert!(matches!(next(false), (None, None)));
        assert!(matches!(next(true), (None, Some(_))));
        assert!(!contests.is_open(&MethodCache::default(), 1000));
    }

    #[test]
    fn nothing_is_tried_across_file_systems_or_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "ten bytes!").unwrap();
        let source = OwnedFd::from(File::open(&path).unwrap());
        let stat = rustix::fs::fstat(&source).unwrap();
        let dir = File::open(folder.path()).unwrap();
        let tried = |device, options: &CopyOptions| {
            let contests = contests(ContestState::default());
            let places = SmallFileEnds { source: &source, stat: &stat, dir: dir.as_fd(), device };
            contests.plan(&mut AWAKE(), &places, options, &DevicePairs::default());
            locked(&contests.state).rival.is_some()
        };
        let never = CopyOptions { reflink: When::Never, ..CopyOptions::default() };
        assert!(!tried(stat.st_dev + 1, &CopyOptions::default()));
        assert!(!tried(stat.st_dev, &never));
    }
}
