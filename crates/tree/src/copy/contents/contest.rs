//! Evidence about small files: whether they go faster by read and write, or by a mechanism that
//! copies without their bytes coming to us. No profile has it, since opening both files is part of
//! it. The files of a run themselves are timed, the two ways by turns; then the rule of all choices
//! decides for files of about that size.
//!
//! Nothing is kept for the next run: finding out again costs a few hundred files their worse way.

use rustix::fs::Stat;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};
use thalweg_core::{
    Blocks, End, EndFacts, Facts, Kind, Plan, Prefer, Tuning,
    mechanisms::{LAST_RESORT, by_name},
    profile::{Evidence, LEAST_NOISE, Load, Ratio, SinkState},
    select::{Candidate, Prior},
};
use thalweg_sys::host::filesystem;

use crate::{
    CopyOptions,
    copy::contents::pair::{Pair, Pairs},
    identity::size,
};

/// The contests of one worker, on the pair of file systems it met last.
#[derive(Debug, Default)]
pub(crate) struct Contests {
    seen: u32,
    devices: (u64, u64),
    rival: Option<Rival>,
    classes: [Class; CLASSES],
}

/// How a small file is to go if not by read and write.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub plan: Arc<Plan>,
    pub pair: Option<Arc<Pair>>,
}

/// The mechanism that read and write are compared with.
#[derive(Debug)]
struct Rival {
    name: &'static str,
    planned: Planned,
}

/// Where a file goes and comes from, as far as it matters here.
pub(crate) struct Places<'a> {
    pub source: &'a OwnedFd,
    pub stat: &'a Stat,
    pub dir: BorrowedFd<'a>,
    /// The device of `dir`.
    pub device: u64,
}

/// Files before the first contest: a copy of a few need not be asked anything.
const PRELUDE: u32 = 32;
// Files are compared with those that have as many digits to the base 16: mechanisms differ in how
// their cost grows.
const CLASSES: usize = 16;

/// What is known of one class of sizes.
#[derive(Clone, Debug)]
enum Class {
    /// Still going: the samples of read and write, and of the rival.
    Open([Samples; 2]),
    /// The plan, unless read and write are the choice.
    Decided(Option<Arc<Plan>>),
}

#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    count: u32,
    /// Sum of the logarithms of their costs, so that one interrupted file does not decide.
    sum: f64,
}

impl Default for Class {
    fn default() -> Self {
        Self::Open([Samples::default(); 2])
    }
}

/// Samples of each way. They scatter by about a third, so the mean is known to about 3 %.
const SAMPLES: u32 = 128;
// What a call costs beyond its bytes is about what a page costs: makes sizes comparable.
const CALL: f64 = 4096.0;

impl Contests {
    /// How the next file is to go, if not by read and write.
    pub fn plan(
        &mut self,
        places: &Places<'_>,
        options: &CopyOptions,
        pairs: &Pairs,
    ) -> Option<Planned> {
        let stat = places.stat;
        // Across file systems nothing is cheaper, and an empty file may be one that lies.
        if stat.st_dev != places.device || stat.st_size == 0 {
            return None;
        }
        if self.seen < PRELUDE {
            self.seen += 1;
            return None;
        }
        let devices = (stat.st_dev, places.device);
        if self.devices != devices {
            *self = Self { seen: self.seen, devices, ..Self::default() };
            self.rival = rival(places, options, pairs);
        }
        let rival = self.rival.as_ref()?;
        match &self.classes[class(size(stat))] {
            Class::Open([plain, kernel]) => {
                (kernel.count < plain.count).then(|| rival.planned.clone())
            }
            Class::Decided(plan) => {
                let plan = Arc::clone(plan.as_ref()?);
                Some(Planned { plan, pair: rival.planned.pair.clone() })
            }
        }
    }

    /// Whether times are still wanted for files of this size.
    pub fn is_open(&self, size: u64) -> bool {
        self.rival.is_some() && matches!(self.classes[class(size)], Class::Open(_))
    }

    /// Takes the time of one file.
    pub fn note(&mut self, is_planned: bool, size: u64, took: Duration) {
        let (Some(rival), class) = (&self.rival, &mut self.classes[class(size)]) else { return };
        let Class::Open(samples) = class else { return };
        let own = &mut samples[usize::from(is_planned)];
        let cost = took.as_nanos().max(1) as f64 / (size as f64 + CALL);
        *own = Samples { count: own.count + 1, sum: own.sum + cost.ln() };
        let [plain, kernel] = *samples;
        if plain.count >= SAMPLES && kernel.count >= SAMPLES {
            let ratio =
                (kernel.sum / f64::from(kernel.count) - plain.sum / f64::from(plain.count)).exp();
            let plan = decide(rival.name, ratio);
            let is_plain =
                plan.chosen().is_none_or(|chosen| chosen.mechanism == LAST_RESORT.info().name);
            *class = Class::Decided((!is_plain).then(|| Arc::new(plan)));
        }
    }

    /// The driver left this mechanism: if it is the rival, it does not take part any more.
    pub fn left(&mut self, mechanism: &str) {
        if self.rival.as_ref().is_some_and(|rival| rival.name == mechanism) {
            self.rival = None;
        }
    }
}

/// The rival on this pair of file systems: the first mechanism that the planner would allow and that
/// leaves it to the file system how blocks are copied.
fn rival(places: &Places<'_>, options: &CopyOptions, pairs: &Pairs) -> Option<Rival> {
    let fs = filesystem(places.dir).ok()?;
    // Elsewhere a size is only a claim, and the rival believes it.
    if fs.remote || fs.name.starts_with("fuse") || fs.name == "overlay" {
        return None;
    }
    let facts = || {
        let source = End { fd: places.source.as_fd(), kind: Kind::File, at: Some(0) };
        let sink = EndFacts { kind: Kind::File, fs: Some(fs), ..EndFacts::MEMORY };
        Facts { source: EndFacts::of(&source), sink, len: None, needs: options.needs }
    };
    let pair = pairs.of((places.stat.st_dev, places.device), facts);
    let plan = pair.plan(options, options.needs, Some(size(places.stat)));
    let leaves_it =
        |name: &str| by_name(name).is_some_and(|m| m.info().nature.blocks == Blocks::MayShare);
    let usable = plan.verdicts.iter().filter(|verdict| verdict.judgement.is_usable());
    let name = usable.map(|verdict| verdict.mechanism).find(|name| leaves_it(name))?;
    let first = [candidate(name, None), candidate(LAST_RESORT.info().name, None)];
    let plan = Arc::new(Plan::of(first.into(), Prefer::Wall));
    Some(Rival { name, planned: Planned { plan, pair: Some(pair) } })
}

/// The plan that follows from the cost of the rival, as a ratio to that of read and write.
fn decide(rival: &'static str, ratio: f64) -> Plan {
    let plain = candidate(LAST_RESORT.info().name, Some(1.0));
    Plan::of(vec![plain, candidate(rival, Some(ratio))], Prefer::Wall)
}

fn candidate(name: &'static str, ratio: Option<f64>) -> Candidate {
    let evidence = ratio.map(|ratio| Evidence {
        tuning: Tuning::default(),
        wall: Ratio { ratio, lo: ratio, hi: ratio },
        cpu: Ratio::ONE,
        noise: LEAST_NOISE,
        ns_per_byte: 0.0,
        memory: None,
        at: String::new(),
        sessions: 1,
        rounds: SAMPLES,
        load: Load::Idle,
        sink_state: SinkState::Fresh,
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

    /// Whether the rival is chosen for files of 1,000 bytes, from the nanoseconds that they took.
    fn after(kernel: u64, plain: u64) -> bool {
        let leaves_it =
            |name: &&str| by_name(name).is_some_and(|m| m.info().nature.blocks == Blocks::MayShare);
        let name = MECHANISMS.iter().map(|m| m.info().name).find(leaves_it).unwrap();
        let planned = Planned { plan: Arc::new(decide(name, 1.0)), pair: None };
        let rival = Some(Rival { name, planned });
        let mut contests = Contests { rival, ..Contests::default() };
        for n in 0..SAMPLES {
            let jitter = u64::from(n % 7) * 100;
            contests.note(false, 1000, Duration::from_nanos(plain + jitter));
            contests.note(true, 1000, Duration::from_nanos(kernel + jitter));
        }
        assert!(!contests.is_open(1000) && contests.is_open(100_000));
        let Class::Decided(plan) = &contests.classes[class(1000)] else { return false };
        let first = plan.as_ref().map(|plan| plan.ladder()[0].0.info().name);
        assert_eq!(first, plan.as_ref().map(|_| name));
        plan.is_some()
    }

    #[test]
    fn the_rival_wins_only_by_more_than_noise() {
        assert!(after(4000, 5000));
        assert!(!after(5000, 4000));
        assert!(!after(4950, 5000));
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
            let mut contests = Contests { seen: PRELUDE, ..Contests::default() };
            let places = Places { source: &source, stat: &stat, dir: dir.as_fd(), device };
            contests.plan(&places, options, &Pairs::default());
            contests.rival.is_some()
        };
        let never = CopyOptions { reflink: When::Never, ..CopyOptions::default() };
        assert!(!tried(stat.st_dev + 1, &CopyOptions::default()));
        assert!(!tried(stat.st_dev, &never));
    }
}
