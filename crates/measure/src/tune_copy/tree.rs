//! Tunes the copy of a tree: first its largest file, then the whole copy with one thread and with many, against `cp
//! -r`, on a sample of the tree's files.

use std::{cell::RefCell, fs, num::NonZero, path::Path, sync::Arc, time::Duration};
use thalweg_core::{Guarantees, MECHANISMS, Profile, Request, profile::Ratio};
use thalweg_tree::{CopyOptions, Target};

use super::{
    TuneClock, TuneError, TuneJob, TuneResult,
    entrants::Entrants,
    evaluation::{Measured, TuneSubject},
    file::tune_file,
    pick::{Picked, SampledFiles, Walk, gather, pick},
    slice::{Placement, SliceFacts},
    tree_arms::{SampleTree, TreeArm, TreeCopier},
};
use crate::{
    arms::{
        command::{CommandRunner, Outputs},
        cp::{Cp, CpArm, CpSite},
    },
    conditions::Conditions,
    log::SampleLog,
    outcome::RatioOutcome,
    sample::SampleMetric,
    schedule::Rules,
    scratch::ScratchFolder,
    stats::{Random, RatioVerdict},
};

/// Fraction of the budget for finding files.
const WALK_SHARE: f64 = 0.1;
/// Fraction of the budget for the largest file, if it is worth measuring.
const FILE_SHARE: f64 = 0.3;
/// Fraction of the budget for copying the sample, which may have to be read from disk.
const GATHER_SHARE: f64 = 0.25;
/// Minimum fraction of the bytes in files of at least `WORTH_IT` bytes, for the largest file to be measured.
const WORTH_IT_SHARE: f64 = 0.1;
/// Minimum size of a file that is measured separately.
const WORTH_IT: u64 = 1 << 20;
/// The number of rounds for which the size of the sample is chosen.
const ROUNDS: f64 = 5.0;
/// The cost of one copy relative to writing the sample: the copy and its removal.
const COPY_AND_REMOVE: f64 = 2.0;

/// Measures the copy of a tree or of several files: `copy` with one thread and with as many as there are CPUs, or
/// only with the requested number.
pub(super) fn tune_tree(job: &TuneJob<'_>, copy: &TreeCopier) -> Result<TuneResult, TuneError> {
    let mut clock = TuneClock::start(job.budget);
    let mut random = Random::new(job.seed);
    let walk = walk_sources(job, &mut random)?;
    let lengths = lengths(&walk.picked);
    let large = large_file(job, &walk.picked, &lengths)?;
    let (mut profile, mut request) = (Profile::new(), job.request.clone());
    if let Some(large) = &large {
        large.teach(&mut profile, &mut request);
    }
    let options = sample_options(job, profile, request.clone());
    let threads = threads(job.options.jobs);
    let folder = ScratchFolder::inside(job.destination).map_err(TuneError::io(job.destination))?;
    let [sample, copied, empty] = ["sample", "copy", "empty"].map(|name| folder.file(name));
    let conditions = Conditions::now(&[&job.sources[0], job.destination]);
    let outputs = Outputs::inside(folder.path(), "cp").map_err(TuneError::io(folder.path()))?;
    let runner = CommandRunner::of_copies(&outputs, job.stop);
    let site = CpSite { runner, empty: &empty, copy: &copied };
    let cp = find_peer(job, &site);
    let arms = threads.len() + usize::from(cp.is_ok());
    let sampled = gather_for(job, &walk, &lengths, arms, &mut clock, &sample)?;
    let SampledFiles { bytes, files, .. } = sampled;
    let place = SampleTree { sample: sample.clone(), copy: copied.clone(), bytes, files };
    let (starts, checked) = (RefCell::default(), || place.check());
    let mut entrants = Entrants::new(job, clock, random);
    for jobs in &threads {
        let options = CopyOptions { jobs: *jobs, ..options.clone() };
        let arm = TreeArm::new(options, &place, copy, job.stop);
        let answer = entrants.admit(arm, TuneSubject::Threads(*jobs))?;
        answer.map_err(|unfit| TuneError::not_tunable(unfit.reason))?;
    }
    let mut without_peer = None;
    if let Ok(cp) = &cp {
        let source = &sample;
        let arm = CpArm { cp, site, source, bytes, checked: &checked, starts: &starts };
        without_peer = entrants.admit(arm, TuneSubject::Peer(cp.command.clone()))?.err();
    }
    let all: Vec<usize> = (0..entrants.len()).collect();
    entrants.rounds(all.clone(), all, Rules::default())?;
    let (log, subjects, mut random) = entrants.finish();
    let measured = Measured {
        log,
        subjects,
        reference: 0,
        cp: without_peer.map_or_else(|| cp.clone(), |unfit| Err(unfit.reason)),
        starts: starts.take(),
        slice: slice_facts(&sampled),
        conditions,
        unavailable: Vec::new(),
    };
    let mut result = measured.result(None, &request, clock, &mut random);
    result.jobs = threads_to_take(&result.log, &threads, result.noise, &mut random);
    if let Some(large) = large {
        result.take_choice_of(large);
    }
    Ok(result)
}

/// Finds files in the sources, and picks some of them at random.
fn walk_sources(job: &TuneJob<'_>, random: &mut Random) -> Result<Walk, TuneError> {
    let walk = pick(job.sources, job.budget.mul_f64(WALK_SHARE), random, job.stop)?;
    if walk.picked.is_empty() {
        return Err(TuneError::not_tunable("no regular file was found in the sources"));
    }
    Ok(walk)
}

/// Returns the options of a copy of the sample: the requested ones that affect its speed, without durability. The
/// destination is an exact path.
fn sample_options(job: &TuneJob<'_>, profile: Profile, request: Request) -> CopyOptions {
    CopyOptions {
        recursive: true,
        target: Target::Exact,
        preserve: job.options.preserve,
        sparse: job.options.sparse,
        reflink: job.options.reflink,
        inplace: job.options.inplace,
        direct: job.options.direct,
        needs: Guarantees { durable: false, ..job.needs },
        profile: Some(Arc::new(profile)),
        request,
        ..CopyOptions::default()
    }
}

/// Copies files into the sample until the remaining time is just enough to measure all arms (compared variants) with
/// this sample. Shortens the budget of `clock` to the estimated time of writing all files.
fn gather_for(
    job: &TuneJob<'_>,
    walk: &Walk,
    lengths: &[u64],
    arms: usize,
    clock: &mut TuneClock,
    sample: &Path,
) -> Result<SampledFiles, TuneError> {
    let arms = arms as f64;
    // Rounds with one arm twice. Warm-up includes verification, so it counts twice.
    let samples = ROUNDS * (arms + 1.0) + 2.0 * arms;
    let began = *clock;
    let mut enough = |sampled: &SampledFiles, all: Duration| {
        let one = sampled.written.as_secs_f64() * COPY_AND_REMOVE;
        *clock = began;
        clock.shorten(seconds_for(walk, lengths, sampled));
        one * samples >= clock.left().as_secs_f64() || all >= job.budget.mul_f64(GATHER_SHARE)
    };
    let sampled = gather(&walk.picked, sample, &mut enough, job.stop)?;
    if sampled.files == 0 {
        return Err(TuneError::not_tunable("none of the chosen files is readable"));
    }
    Ok(sampled)
}

fn slice_facts(sampled: &SampledFiles) -> SliceFacts {
    SliceFacts {
        bytes: sampled.bytes,
        files: sampled.files,
        of: None,
        placement: Placement::Sample,
        holes: false,
    }
}

fn threads(asked_for: usize) -> Vec<usize> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    match asked_for {
        0 if processors > 1 => vec![1, processors],
        0 => vec![1],
        jobs => vec![jobs],
    }
}

fn lengths(picked: &[Picked]) -> Vec<u64> {
    picked.iter().map(|file| fs::metadata(&file.path).map_or(0, |meta| meta.len())).collect()
}

/// Returns the estimated seconds to write all files, from the time to write a sample of them; infinity if their
/// number is unknown. Scales by the number of files or by bytes, whichever gives more.
fn seconds_for(walk: &Walk, lengths: &[u64], sampled: &SampledFiles) -> f64 {
    let Some(files) = walk.files else { return f64::INFINITY };
    let drawn = files as f64 / lengths.len() as f64;
    let bytes = lengths.iter().sum::<u64>() as f64 * drawn;
    let parts = (files as f64 / sampled.files as f64).max(bytes / sampled.bytes.max(1) as f64);
    sampled.written.as_secs_f64() * parts
}

/// Returns the results for the largest of the picked files, if large files matter in this tree.
fn large_file(
    job: &TuneJob<'_>,
    picked: &[Picked],
    lengths: &[u64],
) -> Result<Option<TuneResult>, TuneError> {
    let long: u64 = lengths.iter().filter(|length| **length >= WORTH_IT).sum();
    let all: u64 = lengths.iter().sum();
    let largest = picked.iter().zip(lengths).max_by_key(|(_, length)| **length);
    let Some((largest, _)) = largest.filter(|_| long as f64 > all as f64 * WORTH_IT_SHARE) else {
        return Ok(None);
    };
    let part =
        TuneJob { request: job.request.clone(), budget: job.budget.mul_f64(FILE_SHARE), ..*job };
    match tune_file(&part, &largest.path, MECHANISMS) {
        Ok(found) => Ok(Some(found)),
        // If the largest file cannot be measured, the tree may still be.
        Err(TuneError::NotTunable { .. } | TuneError::Io { .. }) => Ok(None),
        Err(TuneError::Cancelled(stopped)) => Err(stopped.into()),
    }
}

fn find_peer(job: &TuneJob<'_>, site: &CpSite<'_>) -> Result<Cp, String> {
    let keep = job.options.preserve;
    let kind = match (keep.xattrs && keep.links, keep.mode || keep.times) {
        (true, _) => "-a",
        (false, true) => "-rp",
        (false, false) => "-r",
    };
    let wished = format!("{kind} --reflink=never");
    Cp::find(&[&wished, kind], site)
}

/// Returns the default of `copy`: as many threads as there are CPUs, unless fewer were faster with certainty. `None`
/// if not all numbers were measured.
fn threads_to_take(
    log: &SampleLog,
    threads: &[usize],
    noise: f64,
    random: &mut Random,
) -> Option<usize> {
    let usual = threads.len().checked_sub(1)?;
    let fewer: Option<Vec<Ratio>> =
        (0..usual).map(|arm| log.ratio(arm, usual, &SampleMetric::Wall, random)).collect();
    Some(take(threads, &fewer?, noise))
}

/// Chooses the number of threads. `fewer` contains the time of each smaller number relative to that of the largest
/// number.
fn take(threads: &[usize], fewer: &[Ratio], noise: f64) -> usize {
    let word = |ratio: &Ratio| RatioOutcome { ratio: *ratio, noise }.word();
    let faster = fewer.iter().position(|ratio| word(ratio) == RatioVerdict::Faster);
    threads[faster.unwrap_or(fewer.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_tree_is_expected_to_take_what_its_files_and_bytes_do() {
        let walk = |files| Walk { picked: Vec::new(), files };
        let written = Duration::from_millis(10);
        // The walk found ten files and picked five. Two of the five were copied, which took 10 ms, so all ten take 50
        // ms.
        let sampled = SampledFiles { files: 2, bytes: 400, written };
        let small = [200, 200, 200, 200, 200];
        assert!((seconds_for(&walk(Some(10)), &small, &sampled) - 0.05).abs() < 1e-9);
        // One picked file is long, and the sample contains only its beginning. The bytes then decide the estimate, not
        // the number of files.
        let long = [200, 200, 200, 200, 19_200];
        assert!((seconds_for(&walk(Some(10)), &long, &sampled) - 1.0).abs() < 1e-9);
        assert!(seconds_for(&walk(None), &small, &sampled).is_infinite());
        let nothing = SampledFiles { bytes: 0, ..sampled };
        assert!((seconds_for(&walk(Some(10)), &[0; 5], &nothing) - 0.05).abs() < 1e-9);
    }

    #[test]
    fn where_no_difference_is_shown_the_default_number_of_threads_stays() {
        let ratio = |ratio, lo, hi| Ratio { ratio, lo, hi };
        // One thread seems faster, but the noise is as large as the difference.
        assert_eq!(take(&[1, 2], &[ratio(0.66, 0.47, 0.91)], 1.0), 2);
        assert_eq!(take(&[1, 2], &[ratio(0.97, 0.90, 1.05)], 0.03), 2);
        assert_eq!(take(&[1, 2], &[ratio(0.5, 0.45, 0.55)], 0.03), 1);
        assert_eq!(take(&[3], &[], 0.03), 3);
    }
}
