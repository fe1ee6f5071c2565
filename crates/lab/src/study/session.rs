//! Runs inside the fresh process of a session: measures a study under every condition once, in random order, and
//! reports on stdout.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Unfit};

use super::{
    file::{ClaimCheck, StudyFile},
    messages::{ConditionLog, SessionEvent, SessionJob, SessionLog},
    result::{Condition, ProbeResult, ProbeSession},
    rounds::{self, OpenedArm, RoundPace, SessionEnd},
};
use crate::arms::{ArmJob, Catalogue};
use thalweg_measure::{
    load::Running,
    processors::{self, Processors},
};
use thalweg_measure::{
    session::{self, report},
    stats::{Random, median},
};

/// Reads the job, runs it and reports the result. An error concerns the session as a whole, never a single arm (a
/// compared variant).
pub fn main(catalogue: &Catalogue) -> Result<(), String> {
    // If the parent is killed, it cannot stop this process, so the kernel does it (`PR_SET_PDEATHSIG`). A watcher
    // thread is not an alternative: with a second thread every system call on a descriptor becomes slightly slower.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| format!("prctl: {e}"))?;
    let job: SessionJob = session::job()?;
    let study = StudyFile::parse(&job.text, catalogue)?;
    let everywhere = Processors::of_this_thread()?;
    if !job.pinned.is_empty() {
        processors::pin_to(&Processors::new(job.pinned.clone())?)?;
    }
    let random = Random::new(job.seed);
    StudySession { job: &job, study: &study, catalogue, everywhere, random }.run()
}

struct StudySession<'s> {
    job: &'s SessionJob,
    study: &'s StudyFile,
    catalogue: &'s Catalogue,
    /// The CPU affinity before pinning.
    everywhere: Processors,
    random: Random,
}

impl StudySession<'_> {
    fn run(mut self) -> Result<(), String> {
        let null_seconds = self.null_seconds();
        let mut order: Vec<usize> = (0..self.job.places.len()).collect();
        self.random.shuffle(&mut order);
        let mut logs: Vec<Option<ConditionLog>> = vec![None; order.len()];
        order.retain(|number| self.takes_part(*number));
        for number in order {
            report(&SessionEvent::Place { place: number })?;
            let began = Instant::now();
            match self.measure_condition(number) {
                Ok(log) => {
                    let seconds = began.elapsed().as_secs_f64();
                    logs[number] = Some(ConditionLog { seconds, ..log });
                }
                Err(SessionEnd::Wrong { arm, reason }) => {
                    let place = self.job.places[number].clone();
                    return report(&SessionEvent::Wrong { arm, place, reason });
                }
                Err(SessionEnd::Cancelled) => {
                    return Err("the parent process no longer reads".to_owned());
                }
            }
        }
        let places = logs.into_iter().flatten().collect();
        let probes = self.probes();
        let log = SessionLog { session: self.job.session, null_seconds, places, probes };
        report(&SessionEvent::Done { log })
    }

    /// Returns `false` if the cell of the condition needs fewer sessions.
    fn takes_part(&self, number: usize) -> bool {
        let most = self.study.cell(&self.job.places[number].cell).and_then(|cell| cell.sessions);
        most.is_none_or(|most| self.job.session < most)
    }

    /// Measures the overhead of the harness: the median wall time of samples that do nothing.
    fn null_seconds(&self) -> f64 {
        let Some(null) = self.catalogue.arm_kind("null") else { return 0.0 };
        let Ok(mut piece) = null.open(&self.job("null", &toml::Table::new(), 1, &self.job.scratch))
        else {
            return 0.0;
        };
        let samples = (0..33).filter_map(|_| piece.sample(1).ok());
        median(&samples.map(|s| s.wall_seconds()).collect::<Vec<_>>()).unwrap_or(0.0)
    }

    fn job<'j>(
        &'j self,
        arm: &'j str,
        with: &'j toml::Table,
        bytes: u64,
        scratch: &'j Path,
    ) -> ArmJob<'j> {
        let (studies, program) = (self.job.folder.as_path(), self.job.program.as_path());
        ArmJob { arm, with, bytes, scratch, studies, program }
    }

    /// Runs the study under one condition, pinned to one CPU if its cell (arms that are compared with each other)
    /// requests that.
    fn measure_condition(&mut self, number: usize) -> Result<ConditionLog, SessionEnd> {
        let place = &self.job.places[number];
        if !self.study.cell(&place.cell).is_some_and(|cell| cell.pinned) {
            return self.one_condition(number);
        }
        let here = Processors::of_this_thread();
        match here.and_then(|here| processors::pin_to(&here.last()).map(|()| here)) {
            Err(reason) => Ok(self.nothing_of(place, &reason)),
            Ok(here) => {
                let log = self.one_condition(number);
                // The affinity must be restored; otherwise the following conditions would be pinned as well.
                processors::pin_to(&here).map_err(|_| SessionEnd::Cancelled)?;
                log
            }
        }
    }

    /// Returns the log of a condition under which no arm could run.
    fn nothing_of(&self, place: &Condition, reason: &str) -> ConditionLog {
        let names = self.study.cell(&place.cell).map(|cell| cell.arms.as_slice());
        let missing = names.unwrap_or_default().iter();
        ConditionLog {
            place: place.clone(),
            arms: Vec::new(),
            missing: missing.map(|name| (name.clone(), reason.to_owned())).collect(),
            seconds: 0.0,
        }
    }

    /// Runs the study under one condition: starts the load, opens the arms, runs the rounds. All resources are
    /// released on return.
    fn one_condition(&mut self, number: usize) -> Result<ConditionLog, SessionEnd> {
        let place = &self.job.places[number];
        let scratch = self.job.scratch.join(format!("place-{number}"));
        let names = self.study.cell(&place.cell).map(|cell| cell.arms.clone()).unwrap_or_default();
        let nowhere = |reason: String| self.nothing_of(place, &reason);
        if let Err(error) = fs::create_dir(&scratch) {
            return Ok(nowhere(format!("{}: {error}", scratch.display())));
        }
        let load = Running::start(place.load, &self.job.program, &scratch, &self.everywhere);
        let mut load = match load {
            Ok(load) => load,
            Err(unfit) => return Ok(nowhere(unfit.to_string())),
        };
        let opened = names.iter().map(|name| self.open(name, place, &scratch)).collect();
        let sample = Duration::try_from_secs_f64(self.job.sample_seconds).unwrap_or_default();
        let is_long = self.study.cell(&place.cell).is_some_and(|cell| cell.long);
        let pace = RoundPace {
            session: self.job.session,
            rounds: self.rounds(place),
            sample: (!is_long).then_some(sample),
        };
        let mut on_round = |done, rates| {
            report(&SessionEvent::Round { place: number, done, rates }).map_err(|_| Cancelled)
        };
        let log = rounds::perform(place, opened, pace, &mut self.random, &mut on_round);
        // A load that failed at an unknown time may have been absent for some samples, so none can be used.
        let log = match load.failed() {
            Some(reason) => log.map(|_| self.nothing_of(place, &reason)),
            None => log,
        };
        drop(load);
        // If removal fails here, the file is removed with the session's directory.
        let _ = fs::remove_dir_all(&scratch);
        log
    }

    /// Returns the number of rounds. A cell with long operations can limit it.
    fn rounds(&self, place: &Condition) -> usize {
        let most = self.study.cell(&place.cell).and_then(|cell| cell.rounds);
        self.job.rounds.min(most.unwrap_or(usize::MAX))
    }

    fn open(&self, name: &str, place: &Condition, scratch: &Path) -> OpenedArm {
        let arm = (|| {
            let arm = self.study.arms.iter().find(|arm| arm.name == name);
            let cell = self.study.cell(&place.cell);
            let (Some(arm), Some(cell)) = (arm, cell) else {
                return Err(Unfit::because("the study has no such variant or test case"));
            };
            let work = self.catalogue.arm_kind(&arm.work);
            let work =
                work.ok_or_else(|| Unfit::because(format!("unknown work {:?}", arm.work)))?;
            // Each arm gets its own directory, so that two arms of one work cannot use the same file.
            let number = self.study.arms.iter().position(|arm| arm.name == name).unwrap_or(0);
            let own = scratch.join(format!("arm-{number}"));
            fs::create_dir(&own).map_err(|e| Unfit::because(format!("{}: {e}", own.display())))?;
            work.open(&self.job(name, &cell.parameters(arm), place.bytes, &own))
        })();
        OpenedArm { name: name.to_owned(), arm }
    }

    /// Runs every probe that a claim refers to.
    fn probes(&self) -> Vec<ProbeResult> {
        let mut found = Vec::new();
        for claim in &self.study.claims {
            for (check, asked) in claim.all_checks().enumerate() {
                let ClaimCheck::Probe { probe, with, .. } = asked else { continue };
                let scratch = self.job.scratch.join(format!("probe-{}", found.len()));
                let seen = self.probe(probe, with, &claim.id, &scratch);
                let session = ProbeSession {
                    session: self.job.session,
                    missing: seen.as_ref().err().map(ToString::to_string),
                    finding: seen.ok(),
                };
                found.push(ProbeResult {
                    claim: claim.id.clone(),
                    check,
                    probe: probe.clone(),
                    with: Some(with.clone()),
                    sessions: vec![session],
                });
                let _ = fs::remove_dir_all(&scratch);
            }
        }
        found
    }

    fn probe(
        &self,
        name: &str,
        with: &toml::Table,
        claim: &str,
        scratch: &Path,
    ) -> Result<crate::arms::ProbeFinding, Unfit> {
        let probe = self.catalogue.probe(name);
        let probe = probe.ok_or_else(|| Unfit::because(format!("unknown probe {name}")))?;
        fs::create_dir(scratch)
            .map_err(|e| Unfit::because(format!("{}: {e}", scratch.display())))?;
        probe.run(&self.job(claim, with, 0, scratch))
    }
}
