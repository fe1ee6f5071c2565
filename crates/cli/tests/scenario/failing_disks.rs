//! Disks that fail below a mounted file system: writes or flushes return EIO, or the storage behind the disk is full.
//! With `--fsync`, exit status 0 means that the disk has all data, and no later run trusts lost data.
//! `THALWEG_FAULTS=500` makes the campaign longer.

use std::{fs, path::Path, time::Instant};

use crate::{
    power_cut::{
        chosen_systems,
        command::{CutCase, CutCommand, same_command},
        contents::hashes,
        is_wanted, may_cut,
        place::Place,
        system::{DiskSystem, copy_image},
    },
    support::{
        Ran,
        fuse::disk::{DiskFault, FuseDisk, REQUEST_KIB, RequestCounts},
        loop_disk::{LoopDevice, MountedDisk},
        skip::has_tools,
    },
};
use thalweg_testing::{Dice, from_env};

/// Counts of runs by their outcome.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Runs that ended with exit status 0.
    successes: u64,
    /// Disks that could not be mounted again after a failed run.
    unmountable: u64,
    /// Second runs that failed too.
    refused: u64,
    failures: Vec<String>,
}

/// Runs of one command on one file system.
struct FaultTrial<'a> {
    case: &'a CutCase,
    system: &'a DiskSystem,
    place: Place,
    tally: Tally,
}

impl<'a> FaultTrial<'a> {
    fn new(case: &'a CutCase, system: &'a DiskSystem) -> Self {
        Self { case, system, place: Place::new(case, system), tally: Tally::default() }
    }

    /// Runs the command on a disk with this fault, and leaves the image in `served.img`. Returns the result and the
    /// number of requests.
    fn run_with(&self, test: &str, fault: Option<DiskFault>) -> Option<(Ran, RequestCounts)> {
        let served = self.place.memory().join("served.img");
        copy_image(&self.place.base(), &served);
        let fuse = FuseDisk::serve(test, &served, &self.place.memory().join("fuse"))?;
        let device = LoopDevice::attach(&fuse.file()).with_requests_of(REQUEST_KIB);
        let disk = MountedDisk::of_device(device, &self.place.disk(), self.system.options).unwrap();
        fuse.set_fault(fault);
        let ran = self.case.run(&self.place, &[], same_command).expect_no_panic();
        let counts = fuse.counts();
        // Removes the fault before the unmount, because the command cannot report errors of the unmount.
        fuse.set_fault(None);
        drop(disk);
        Some((ran, counts))
    }

    /// Checks the disk after a run, then runs the command again on it.
    fn judge(&mut self, what: &str, ran: &Ran, image: &Path) {
        let (case, place, tally) = (self.case, &self.place, &mut self.tally);
        let label = format!("{} on {}, {what}", case.name, self.system.name);
        let mut fail = |reason: String| {
            eprintln!("{label}: {reason}");
            tally.failures.push(format!("{label}: {reason}"));
        };
        tally.runs += 1;
        let has_succeeded = ran.code() == 0;
        tally.successes += u64::from(has_succeeded);
        let disk = match MountedDisk::of_image(image, &place.disk(), self.system.options) {
            Ok(disk) => disk,
            Err(reason) if has_succeeded => return fail(format!("exit status 0, then {reason}")),
            Err(_) => return tally.unmountable += 1,
        };
        let judge = || hashes(&place.copy()).and_then(|found| place.judge_copy(case, &found));
        if has_succeeded && let Err(reason) = judge() {
            fail(format!("exit status 0, and on the disk {reason}"));
        }
        let resume = ["--resume".to_owned()];
        let words = if matches!(case.command, CutCommand::CopyTree(_)) { &resume[..] } else { &[] };
        let again = case.run(place, words, same_command).expect_no_panic();
        if again.code() == 0
            && let Err(reason) = judge()
        {
            fail(format!("status {}, then the next run ended with 0: {reason}", ran.code()));
        }
        tally.refused += u64::from(again.code() != 0);
        drop(disk);
    }

    fn finish(self, began: Instant) -> Vec<String> {
        let Tally { runs, successes, unmountable, refused, failures } = self.tally;
        println!(
            "failing disk: {} on {}: {runs} runs, {successes} ended with 0, {unmountable} disks unmountable, {refused} \
             second runs failed, {} failures, {:.1} s",
            self.case.name,
            self.system.name,
            failures.len(),
            began.elapsed().as_secs_f64()
        );
        failures
    }
}

/// Runs campaigns of these commands on the chosen file systems.
#[track_caller]
fn on_chosen_systems(
    test: &str,
    cases: &[&str],
    attempt: impl Fn(FaultTrial, &mut Dice) -> Option<Vec<String>>,
) {
    if !may_cut(test) {
        return;
    }
    let mut failures = Vec::new();
    for case in cases.iter().filter(|case| is_wanted(case, "THALWEG_CUT_COMMAND")) {
        for system in chosen_systems(test, case) {
            if has_tools(test, &[system.mkfs]) {
                let mut dice = Dice::new(&format!("{test}: {case} on {}", system.name));
                let trial = FaultTrial::new(CutCase::named(case), system);
                failures.extend(attempt(trial, &mut dice).unwrap_or_default());
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Returns the n-th fault of a campaign: each kind in turn, at a random request of a run or shortly after its last one.
fn nth_fault(n: u64, counts: RequestCounts, dice: &mut Dice) -> DiskFault {
    let start = dice.within(0..1 << 20);
    let at = |count: u64| 1 + start % (count + 2);
    match n % 4 {
        0 => DiskFault::Write(at(counts.writes)),
        1 => DiskFault::FlushLosing(at(counts.flushes)),
        2 => DiskFault::WritesFrom(at(counts.writes)),
        _ => DiskFault::Flush(at(counts.flushes)),
    }
}

const DURABLE: [&str; 6] = [
    "copy-fsync",
    "copy-into-fsync",
    "receive-fsync",
    "fetch-fsync",
    "fetch-tree-fsync",
    "fleet-fsync",
];

#[test]
fn a_disk_that_fails_is_never_called_a_success() {
    let test = "a_disk_that_fails_is_never_called_a_success";
    let faults = from_env("THALWEG_FAULTS", 1);
    on_chosen_systems(test, &DURABLE, |mut trial, dice| {
        let began = Instant::now();
        let (ran, counts) = trial.run_with(test, None)?;
        let image = trial.place.memory().join("served.img");
        assert_eq!(ran.code(), 0, "{}: {}", trial.case.name, ran.said());
        trial.judge("no fault", &ran, &image);
        for n in 0..faults {
            let fault = nth_fault(n, counts, dice);
            let (ran, _) = trial.run_with(test, Some(fault))?;
            trial.judge(&format!("{fault:?}"), &ran, &image);
        }
        Some(trial.finish(began))
    });
}

#[test]
fn a_disk_whose_own_store_is_full_is_never_called_a_success() {
    let test = "a_disk_whose_own_store_is_full_is_never_called_a_success";
    let runs = from_env("THALWEG_FAULTS", 1);
    on_chosen_systems(test, &DURABLE, |mut trial, dice| {
        let began = Instant::now();
        let memory = trial.place.memory().to_owned();
        let (store, image) = (memory.join("store"), memory.join("served.img"));
        fs::create_dir(&store).unwrap();
        for _ in 0..runs {
            let free = dice.within(64..8192);
            let base = trial.place.allocated_bytes() >> 10;
            let small = MountedDisk::of_memory(&store, &format!("size={}k", base + free));
            copy_image(&trial.place.base(), &store.join("disk"));
            let (place, options) = (&trial.place, trial.system.options);
            // tmpfs can run out of space at any page, so each request has the size of a page.
            let device = LoopDevice::attach(&store.join("disk")).with_requests_of(4);
            // With very little space, even the mount fails, because it writes to the disk.
            let Ok(disk) = MountedDisk::of_device(device, &place.disk(), options) else { continue };
            let ran = trial.case.run(place, &[], same_command).expect_no_panic();
            // Enlarges the storage before the unmount, because the command cannot report errors of the unmount. ext4
            // writes journalled blocks to their final places only then.
            small.resize_memory(&format!("{}k", base + free + (64 << 10)));
            drop(disk);
            copy_image(&store.join("disk"), &image);
            drop(small);
            trial.judge(&format!("{free} KiB free below the disk"), &ran, &image);
        }
        Some(trial.finish(began))
    });
}
