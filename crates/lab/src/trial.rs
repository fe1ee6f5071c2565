//! Runs an unmodified program with each copy kernel and compares them by the program's own metric.
//!
//! The kernels are injected by an object that the loader loads first ([`thalweg_preload`]). glibc's own copies get
//! other thresholds through the environment. Each round runs every arm (a compared variant) in random order, and one of
//! them twice. The unchanged program is the reference. If something cannot be measured, the result is an error or a
//! reason, never a number.

mod arms;
mod elf;
mod folder;
mod judge;
mod program;
mod reached;
mod run;
mod server;
pub(crate) mod tunables;

pub use arms::{
    KernelBands, LeftOutSetting, OBJECT_ALONE, SettingKind, TrialSetting, bands_given, kernel_names,
};
pub use judge::{Beyond, TrialEffect, TrialRow};
pub use program::TrialProgram;
pub use reached::{Reached, ReachedBand};
pub use server::{Server, ServerReady};
pub use tunables::given as tunables_given;

use serde::Serialize;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_preload::counts::Counts;

use folder::TrialFolder;
use run::TrialRunner;
use thalweg_measure::{
    arms::command::{self, MeasuredValue, Ran, RunMetric, last_words},
    conditions::Conditions,
    experiment::Experiment,
    log::SampleLog,
    sample::Sample,
    schedule::{Arm, Lineup, SampleFailure, SampledArm, Schedule},
    stats::Random,
};

pub struct TrialJob<'t> {
    /// The command to measure, program first.
    pub command: &'t [OsString],
    /// A server that runs during the command. If given, the kernels are injected into the server instead of the
    /// command.
    pub server: Option<&'t Server>,
    /// Names of kernels; `None` for all kernels of this machine.
    pub kernels: Option<&'t [String]>,
    /// The size bands of the kernel `tuned`, if they were measured.
    pub bands: Option<&'t KernelBands>,
    /// The glibc settings to try.
    pub tunables: Tunables,
    /// The metric that decides.
    pub metric: &'t RunMetric,
    /// Number of rounds; each runs every arm once, and one of them a second time.
    pub rounds: usize,
    /// Maximum duration of one run.
    pub limit: Option<Duration>,
    pub seed: u64,
    /// Called between runs, and after an interrupted run.
    pub stop: &'t dyn Fn() -> Result<(), Cancelled>,
    /// Called with a message before a step that takes long.
    pub say: &'t dyn Fn(&str),
}

/// The glibc settings that take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tunables {
    /// Settings that move thresholds of glibc to the cache sizes of this machine.
    Usual,
    These(Vec<TrialSetting>),
}

/// The results of a trial.
#[derive(Debug, Serialize)]
pub struct TrialResult {
    /// The program into which the kernels were injected.
    pub program: TrialProgram,
    pub metric: String,
    /// The noise of this run: the relative difference between two runs of one arm.
    pub noise: f64,
    pub rounds: usize,
    /// A row for every arm; the first one is the unchanged program.
    pub rows: Vec<TrialRow>,
    /// Arms that did not take part.
    pub left_out: Vec<LeftOutSetting>,
    /// The calls that went through the object, counted in a separate run; `None` if no kernel took part.
    pub reached: Option<Reached>,
    pub seed: u64,
    pub conditions: Conditions,
    pub log: SampleLog,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The command does not exist or cannot be executed.
    #[error("{name}: {why}")]
    NoProgram { name: String, why: String },
    #[error("unknown kernel '{name}'; known: {known}")]
    NoKernel { name: String, known: String },
    /// No arm except the unchanged program could take part.
    #[error("no variant to compare with libc: {0}")]
    NothingToTry(String),
    /// No object can be preloaded into the program.
    #[error("{0}")]
    Unreachable(String),
    /// This build does not contain the object.
    #[error("this build of thalweg contains no LD_PRELOAD library: {0}")]
    NoObject(String),
    /// The directory for temporary files is not usable.
    #[error("{path}: {why}")]
    Folder { path: String, why: String },
    /// The unchanged program does not do anything that can be measured.
    #[error("{0}")]
    Program(String),
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
}

pub fn run(trial: &TrialJob<'_>) -> Result<TrialResult, TrialError> {
    let client = TrialProgram::find(trial.command)?;
    let program = match trial.server {
        Some(server) => TrialProgram::find(&server.command)?,
        None => client,
    };
    if let Some(reason) = &program.unreachable {
        return Err(TrialError::Unreachable(reason.clone()));
    }
    let object = thalweg_preload::object().map_err(|why| TrialError::NoObject(why.to_owned()))?;
    let (kernels, mut left_out) = arms::kernels(trial.kernels, trial.bands)?;
    let mut settings = vec![arms::plain()];
    settings.extend(kernels);
    settings.extend(tunables(trial, &program, &mut left_out));
    if settings.len() < 2 {
        let why = left_out.iter().map(|out| format!("{}: {}", out.name, out.reason));
        let mut why: Vec<String> = why.collect();
        if why.is_empty() {
            why.push("give at least one kernel other than libc, or a threshold".to_owned());
        }
        return Err(TrialError::NothingToTry(why.join("; ")));
    }
    let folder = TrialFolder::set_up(object)?;
    let runner = TrialRunner {
        command: trial.command,
        server: trial.server,
        folder: &folder,
        runs: command::CommandRunner {
            outputs: folder.outputs(),
            keeps_output: matches!(trial.metric.what, MeasuredValue::Printed(_)),
            must_succeed: true,
            limit: trial.limit,
            stop: trial.stop,
        },
    };
    let judged = JudgedRunner { runner: &runner, metric: trial.metric };
    let checked = check(&judged, &settings, trial)?;
    let log = rounds(&judged, &settings, &checked, trial);
    let log = log.or_else(|failure| Err(TrialError::Program(failure.unfit()?.reason)))?;
    let (noise, rows) = judge::rows(&log, &settings, trial.metric, &mut Random::new(trial.seed));
    Ok(TrialResult {
        metric: trial.metric.to_string(),
        rounds: log.rounds.len(),
        noise,
        rows,
        reached: checked.reached.map(|counts| Reached::of(&counts)),
        left_out,
        program,
        seed: trial.seed,
        conditions: Conditions::now(&[]),
        log,
    })
}

fn tunables(
    trial: &TrialJob<'_>,
    program: &TrialProgram,
    left_out: &mut Vec<LeftOutSetting>,
) -> Vec<TrialSetting> {
    if let Tunables::These(settings) = &trial.tunables {
        return settings.clone();
    }
    let loader =
        program.loader.as_deref().ok_or_else(|| "the program uses no dynamic loader".to_owned());
    loader.and_then(tunables::usual).unwrap_or_else(|reason| {
        left_out.push(LeftOutSetting { name: "glibc's thresholds".to_owned(), reason });
        Vec::new()
    })
}

/// A runner and the metric of its runs.
struct JudgedRunner<'t> {
    runner: &'t TrialRunner<'t>,
    metric: &'t RunMetric,
}

impl JudgedRunner<'_> {
    /// Runs once. The sample's `reported` holds the value of the metric.
    fn once(&self, setting: &TrialSetting, counted: bool) -> Result<Ran, SampleFailure> {
        let mut ran = self.runner.once(setting, counted)?;
        ran.sample.reported = self.metric.of(&ran).map_err(|why| {
            let name = self.runner.command[0].display();
            format!("{name}: {why}")
        })?;
        Ok(ran)
    }
}

/// The results of the runs before the rounds.
struct CheckedRuns {
    /// For each arm, the reason why it is excluded; `None` if it takes part.
    failed: Vec<Option<String>>,
    /// The calls that went through the object.
    reached: Option<Counts>,
}

/// Runs every arm once before anything counts. This warms up, finds arms that do not work at all, and counts the
/// calls that go through the object.
fn check(
    judged: &JudgedRunner<'_>,
    settings: &[TrialSetting],
    trial: &TrialJob<'_>,
) -> Result<CheckedRuns, TrialError> {
    let began = Instant::now();
    let mut checked = CheckedRuns { failed: vec![None; settings.len()], reached: None };
    for (place, setting) in settings.iter().enumerate() {
        (trial.stop)()?;
        let is_kernel = matches!(setting.kind, SettingKind::Kernel { .. });
        let ran = match judged.once(setting, is_kernel) {
            Ok(ran) => ran,
            Err(failure) => {
                let reason = failure.unfit()?.reason;
                if place == 0 {
                    return Err(TrialError::Program(reason));
                }
                checked.failed[place] = Some(reason);
                continue;
            }
        };
        if is_kernel {
            let counts = judged.runner.folder.counted().map_err(TrialError::Program)?;
            checked.failed[place] = doubts(&counts, setting, &ran)?;
            checked.reached.get_or_insert(counts);
        }
    }
    let took = began.elapsed().as_secs_f64();
    let arms = settings.len();
    let expected = took / arms as f64 * (arms + 1) as f64 * trial.rounds as f64;
    let rounds = trial.rounds;
    (trial.say)(&format!("{arms} variants, {rounds} rounds, about {expected:.0} s"));
    Ok(checked)
}

/// Checks that the object worked in every process. Returns an error if it was never loaded, and a reason to exclude
/// the arm if it rejected its kernel.
fn doubts(
    counts: &Counts,
    setting: &TrialSetting,
    ran: &Ran,
) -> Result<Option<String>, TrialError> {
    if counts.processes == 0 {
        let said = ran.err.lines().find(|line| line.contains("cannot be preloaded"));
        let said = said.map(last_words).map(|words| format!(" ({words})")).unwrap_or_default();
        return Err(TrialError::Unreachable(format!(
            "the preloaded object did not run in the program{said}: the program clears its \
             environment, has no /proc, or may not map files in TMPDIR"
        )));
    }
    if counts.chosen < counts.processes {
        let refused = counts.processes - counts.chosen;
        return Ok(Some(format!(
            "{refused} of {} processes did not use the kernel",
            counts.processes
        )));
    }
    let SettingKind::Kernel { copies, fills } = &setting.kind else { return Ok(None) };
    let needs_libc =
        [copies, fills].iter().any(|text| text.contains(thalweg_preload::choice::LIBC));
    Ok((needs_libc && counts.without_libc > 0)
        .then(|| "the preloaded object did not find libc's own functions".to_owned()))
}

/// A variant of the program, run once per sample.
struct TrialArm<'t> {
    judged: &'t JudgedRunner<'t>,
    setting: &'t TrialSetting,
    stop: &'t dyn Fn() -> Result<(), Cancelled>,
}

impl Arm for TrialArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
        (self.stop)()?;
        Ok(self.judged.once(self.setting, false)?.sample)
    }
}

fn rounds(
    judged: &JudgedRunner<'_>,
    settings: &[TrialSetting],
    checked: &CheckedRuns,
    trial: &TrialJob<'_>,
) -> Result<SampleLog, SampleFailure> {
    let mut experiment = Experiment::default();
    for (setting, failed) in settings.iter().zip(&checked.failed) {
        let arm = SampledArm::once(TrialArm { judged, setting, stop: trial.stop });
        let number = experiment.enter(&setting.name, arm);
        if let Some(reason) = failed {
            experiment.fail(number, reason.clone());
        }
    }
    let random = &mut Random::new(trial.seed);
    let lineup = Lineup::of(experiment.active());
    experiment.run(&mut Schedule::fixed(trial.rounds, trial.stop, random), lineup)?;
    Ok(experiment.log)
}

#[cfg(test)]
mod tests;
