//! Preparation before the first round: the job's facts, the usable mechanisms, and the slice that fits the budget.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thalweg_core::{
    Facts, Guarantees, Judgement, Mechanism, Plan, Request, Role, Transfer, Tuning, Unfit,
    mechanisms::LAST_RESORT, profile::SinkState,
};

use super::{TuneClock, TuneError, TuneJob, UnavailableArm};
use crate::{
    arms::{
        command::{CommandRunner, Outputs},
        cp::{Cp, CpSite},
        transfer::{Medium, Terms, Whole, WholeArm, create},
    },
    schedule::{Arm, Rules, SampleFailure},
    scratch::{ScratchFolder, free_space, remove},
};

/// Maximum bytes per sample. Beyond it, the time is better spent on more rounds.
const LARGEST_SLICE: u64 = 256 << 20;
/// Minimum bytes per sample, unless the file is smaller. Below it, only the overhead of the calls is measured.
const SMALLEST_SLICE: u64 = 256 << 10;
/// Bytes of the first trial. Each further trial moves four times as many, until a trial is long enough to measure.
const FIRST_TRIAL: u64 = 256 << 10;
const LAST_TRIAL: u64 = 4 << 20;
const LONG_ENOUGH: Duration = Duration::from_millis(2);
/// Maximum duration of a sample of the reference, in seconds. Beyond it, the time is better spent on more rounds.
const SAMPLE: f64 = 0.02;

/// A prepared job on one file.
pub(super) struct CopyBench {
    /// The file's path without symbolic links.
    pub source: PathBuf,
    pub len: u64,
    /// The file to which every arm (a compared variant) writes.
    pub sink: PathBuf,
    /// An empty file, to measure the start-up time of `cp`.
    pub empty: PathBuf,
    /// The planner's facts about the job.
    pub facts: Facts,
    /// Files for the output of `cp`.
    pub outputs: Outputs,
    /// Temporary directory in the destination.
    pub folder: ScratchFolder,
}

/// The results of trying the mechanisms.
#[derive(Default)]
pub(super) struct FirstAttempts {
    /// Mechanisms that work, with their seconds per byte including preparation and clean-up.
    pub works: Vec<(&'static dyn Mechanism, f64)>,
    pub unfit: HashMap<&'static str, Unfit>,
    /// Mechanisms that were not tried for lack of time.
    pub untried: HashMap<&'static str, Unfit>,
    /// Seconds per byte to compare a copy with its source.
    pub check: f64,
    /// Seconds per byte of the very first read of the source.
    pub first_read: f64,
}

impl FirstAttempts {
    /// Returns the seconds for reading this number of bytes for the first time and copying them with the reference.
    pub fn seconds_for(&self, bytes: u64) -> f64 {
        let reference = self.works.first().map_or(0.0, |(_, per_byte)| *per_byte);
        bytes as f64 * (self.first_read + reference)
    }
}

impl CopyBench {
    pub fn prepare(job: &TuneJob<'_>, source: &Path) -> Result<Self, TuneError> {
        let source = fs::canonicalize(source).map_err(TuneError::io(source))?;
        let file = File::open(&source).map_err(TuneError::io(&source))?;
        let len = file.metadata().map_err(TuneError::io(&source))?.len();
        if len == 0 {
            return Err(TuneError::not_tunable("the file is empty, or its size is unknown"));
        }
        let folder =
            ScratchFolder::inside(job.destination).map_err(TuneError::io(job.destination))?;
        let sink = folder.file("copy");
        let made = create(&sink).map_err(TuneError::io(&sink))?;
        let transfer = Transfer::between(&file, &made);
        let mut transfer = transfer.map_err(|e| TuneError::io(&source)(e.into()))?;
        transfer.needs = job.needs;
        let facts = Facts::of(&transfer);
        let empty = folder.file("empty");
        let outputs = Outputs::inside(folder.path(), "cp");
        let outputs = outputs.map_err(TuneError::io(folder.path()))?;
        Ok(Self { source, len, sink, empty, facts, outputs, folder })
    }

    /// Returns the transfer that copies the first `len` bytes of a file to the sink.
    pub fn whole<'s>(
        &self,
        job: &TuneJob<'s>,
        source: &Path,
        len: u64,
    ) -> Result<RefCell<Whole<'s>>, TuneError> {
        let needs = Guarantees { durable: false, ..job.needs };
        let terms = Terms { state: SinkState::Fresh, needs, stop: job.stop };
        let whole = Whole::between(Medium::File(source), Medium::File(&self.sink), terms);
        let mut whole = whole.map_err(TuneError::io(&self.sink))?;
        whole.size = len;
        Ok(RefCell::new(whole))
    }

    /// Returns the mechanisms that copy files and may be chosen, and why the others may not.
    pub fn candidates(
        &self,
        mechanisms: &[&'static dyn Mechanism],
        request: &Request,
    ) -> (Vec<&'static dyn Mechanism>, Vec<UnavailableArm>) {
        let plan = Plan::make(&self.facts, request, None);
        let (mut fit, mut unavailable) = (Vec::new(), Vec::new());
        for mechanism in mechanisms {
            let info = mechanism.info();
            let serves = info.pair(self.facts.source.kind, self.facts.sink.kind).is_some();
            if !serves || info.role == Role::Harness {
                continue;
            }
            let verdict = plan.verdicts.iter().find(|verdict| verdict.mechanism == info.name);
            match verdict.map(|verdict| &verdict.judgement) {
                Some(Judgement::Unfit { reason }) => {
                    unavailable.push(UnavailableArm { name: info.name, reason: reason.clone() });
                }
                _ => fit.push(*mechanism),
            }
        }
        (fit, unavailable)
    }

    /// Lets every mechanism copy the first bytes, verifies the result and measures the time. The reference goes first
    /// and must work.
    pub fn try_out(
        &self,
        job: &TuneJob<'_>,
        fit: &[&'static dyn Mechanism],
    ) -> Result<FirstAttempts, TuneError> {
        let mut len = self.len.min(FIRST_TRIAL);
        let first_read = timed_read(&self.source, len)?;
        let mut trial = FirstAttempts { first_read, ..FirstAttempts::default() };
        let place = self.whole(job, &self.source, len)?;
        let mut took = try_one(LAST_RESORT, &place).map_err(hopeless)?;
        while took.sample < LONG_ENOUGH && len < self.len.min(LAST_TRIAL) {
            len = (len * 4).min(self.len);
            place.borrow_mut().size = len;
            took = try_one(LAST_RESORT, &place).map_err(hopeless)?;
        }
        let per_byte = |took: Duration| took.as_secs_f64() / len as f64;
        trial.check = per_byte(took.check);
        trial.works.push((LAST_RESORT, per_byte(took.sample)));
        let others = fit.iter().filter(|m| m.info().name != LAST_RESORT.info().name);
        for mechanism in others {
            match try_one(*mechanism, &place) {
                Ok(took) => trial.works.push((*mechanism, per_byte(took.sample))),
                Err(failure) => {
                    trial.unfit.insert(mechanism.info().name, failure.unfit()?);
                }
            }
        }
        Ok(trial)
    }

    /// Finds the system's `cp`, called with an option against cloning if it has one. The error explains why it cannot
    /// be used.
    pub fn find_peer(&self, job: &TuneJob<'_>) -> Result<Cp, String> {
        remove(&self.sink);
        Cp::find(&["--reflink=never", ""], &self.cp_site(job))
    }

    pub fn cp_site<'b>(&'b self, job: &'b TuneJob<'_>) -> CpSite<'b> {
        let runner = CommandRunner::of_copies(&self.outputs, job.stop);
        CpSite { runner, empty: &self.empty, copy: &self.sink }
    }

    /// Returns the bytes per sample for which `rounds` of all arms use at most `share` of the remaining budget,
    /// including creating the slice and warming up.
    pub fn slice_for(
        &self,
        trial: &FirstAttempts,
        peer: Option<&Cp>,
        clock: &TuneClock,
        rounds: f64,
        share: f64,
    ) -> u64 {
        let reference = trial.works[0].1;
        // Arms that are far too slow will be dropped after the grace rounds.
        let rules = Rules::default();
        let few = (rules.grace_rounds as f64 + 1.0) / (rounds + 1.0);
        let weight = |one: f64| if one > reference * rules.too_slow { one * few } else { one };
        let ours: f64 = trial.works.iter().map(|(_, per_byte)| weight(*per_byte)).sum();
        let (theirs, startup) = peer.map_or((0.0, 0.0), |peer| (reference, peer.startup));
        let count = trial.works.len() as f64 + f64::from(u8::from(peer.is_some()));
        // Each sample of `cp` is preceded by a measurement of its start-up time. A round runs one arm twice. The
        // warm-up is one more round, with a verification for each arm.
        let times = rounds * (1.0 + 1.0 / count) + 1.0;
        let once = trial.first_read + reference + count * trial.check;
        let seconds = clock.left().as_secs_f64() * share - times * startup * 2.0;
        let fitting = seconds / (times * (ours + theirs) + once);
        let room = free_space(self.folder.path()) / 4;
        let fitting = fitting.min(SAMPLE / reference).max(0.0);
        let bytes = (fitting as u64).clamp(SMALLEST_SLICE, LARGEST_SLICE).min(room);
        let grain = if bytes > 1 << 20 { 1 << 20 } else { 4096 };
        if bytes >= self.len { self.len } else { (bytes / grain * grain).max(grain).min(self.len) }
    }
}

struct TransferTime {
    sample: Duration,
    check: Duration,
}

/// Runs a mechanism three times and returns the shorter of the last two times. The first run pays for cold caches, and
/// one of the others may be disturbed.
fn try_one(
    mechanism: &'static dyn Mechanism,
    place: &RefCell<Whole<'_>>,
) -> Result<TransferTime, SampleFailure> {
    let mut arm = WholeArm { place, mechanism, tuning: Tuning::default() };
    arm.sample(1)?;
    let began = Instant::now();
    arm.check()?;
    let check = began.elapsed();
    let mut sample = Duration::MAX;
    for _ in 0..2 {
        let began = Instant::now();
        arm.sample(1)?;
        sample = sample.min(began.elapsed());
    }
    Ok(TransferTime { sample, check })
}

fn hopeless(failure: SampleFailure) -> TuneError {
    failure.unfit().map_or_else(TuneError::from, |unfit| TuneError::not_tunable(unfit.reason))
}

/// Returns the seconds per byte of reading the data for the trials, which may have to come from disk.
fn timed_read(source: &Path, len: u64) -> Result<f64, TuneError> {
    let file = File::open(source).map_err(TuneError::io(source))?;
    let mut buffer = vec![0; len as usize];
    let began = Instant::now();
    let got = thalweg_sys::io::pread(&file, &mut buffer, 0);
    got.map_err(|e| TuneError::io(source)(e.into()))?;
    Ok(began.elapsed().as_secs_f64() / len as f64)
}
