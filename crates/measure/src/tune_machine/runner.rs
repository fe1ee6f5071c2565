//! Runs sessions in separate processes or, for tests and the sentinel, in this process.

use std::{
    io::{self, BufRead},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use thalweg_core::{Cancelled, cadence::HANG, profile::Load};
use thalweg_sys::signal;

use super::{
    job::{ContestJob, ContestLog, SurveyLine},
    session,
};
use crate::{
    StopCheck,
    busy::BusyProcessors,
    load::{BackgroundLoad, Running},
    process,
    processors::Processors,
    schedule::SampleFailure,
    session::{SessionPatience, job, report, run},
};

pub trait Runner {
    /// Runs one session under its load. A failure is reported in the log.
    fn run(&mut self, job: &ContestJob, stop: &StopCheck<'_>) -> ContestLog;

    /// Returns how busy the machine is with other processes, between two sessions. `None` if it is not measured; then
    /// all results are kept under the intended load.
    fn busy(&mut self) -> Option<BusyProcessors> {
        None
    }
}

/// Runs sessions in this process, without background load.
#[derive(Debug, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn run(&mut self, job: &ContestJob, stop: &StopCheck<'_>) -> ContestLog {
        let mut log = ContestLog::default();
        session::run(job, stop, &mut |line| log.take(line));
        log
    }
}

/// Runs each session in a fresh process of this program, as `helper survey`.
#[derive(Clone, Debug)]
pub struct Spawned {
    pub program: PathBuf,
    /// `true` to assume that the machine is idle, without measuring other processes.
    pub assumes_idle: bool,
}

/// A session counts as hung if its output stops for this multiple of its budget. A session may exceed its budget,
/// because it always takes the minimum number of rounds.
const OVERRUN: u32 = 20;

impl Runner for Spawned {
    fn run(&mut self, job: &ContestJob, stop: &StopCheck<'_>) -> ContestLog {
        let mut log = ContestLog::default();
        if let Err(SampleFailure::Unfit(unfit)) = self.measure(job, stop, &mut log) {
            log.failed = Some(format!("a session failed: {unfit}"));
        }
        log
    }

    fn busy(&mut self) -> Option<BusyProcessors> {
        if self.assumes_idle { None } else { BusyProcessors::briefly() }
    }
}

impl Spawned {
    fn measure(
        &self,
        job: &ContestJob,
        stop: &StopCheck<'_>,
        log: &mut ContestLog,
    ) -> Result<(), SampleFailure> {
        let load = match job.load {
            Load::Idle => BackgroundLoad::Idle,
            Load::Loaded => BackgroundLoad::Busy,
        };
        let processors = Processors::of_this_thread()?;
        let mut load = Running::start(load, &self.program, Path::new(""), &processors)?;
        // On a busy machine with slow page faults, a session can print nothing for longer than `HANG` while it prepares
        // memory.
        let silence = job.budget.saturating_mul(OVERRUN).saturating_add(HANG * 6);
        // A cancelled session removes large files before it exits, so it gets more time than other helpers.
        let patience = SessionPatience { silence, grace: HANG };
        let command = process::helper(&self.program, "survey");
        run(command, job, patience, stop, &mut |line: SurveyLine| {
            let over = matches!(line, SurveyLine::Done | SurveyLine::Failed(_));
            log.take(line);
            over.then_some(())
        })?;
        load.failed().map_or(Ok(()), |reason| {
            log.sizes.clear();
            Err(reason.into())
        })
    }
}

/// Session side of [`Spawned`]. Ends early and cleans up if standard input is closed or an interrupt arrives.
pub fn serve() -> Result<(), String> {
    let job: ContestJob = job()?;
    // Installing the handler fails only for signals that do not exist.
    let _ = signal::catch_interrupts();
    let gone = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&gone);
    let watch = move || {
        let mut line = String::new();
        while io::stdin().lock().read_line(&mut line).is_ok_and(|got| got > 0) {
            line.clear();
        }
        watched.store(true, Ordering::Relaxed);
    };
    let refused = |e| format!("cannot create a thread that watches standard input: {e}");
    thread::Builder::new().spawn(watch).map_err(refused)?;
    let stop = || {
        let ended = gone.load(Ordering::Relaxed) || signal::interrupted();
        if ended { Err(Cancelled) } else { Ok(()) }
    };
    let mut answered = Ok(());
    session::run(&job, &stop, &mut |line| {
        if answered.is_ok() {
            answered = report(&line);
        }
    });
    answered
}
