//! An unmodified program under each copy kernel, judged by its own metric.
//!
//! The kernels get under it by an object that the loader loads first ([`thalweg_preload`]); glibc's own
//! copies get other thresholds through its environment. Interleaved rounds, one arm of each twice; the
//! program as it is is the reference. What cannot be measured is an error or a reason, never a number.

mod arms;
mod elf;
mod folder;
mod judge;
mod program;
mod reached;
mod run;
mod server;
pub(crate) mod tunables;

pub use arms::{Bands, Kind, LeftOut, OBJECT_ALONE, Setting, bands_given, kernel_names};
pub use judge::{Beyond, Effect, Row};
pub use program::Program;
pub use reached::{Band, Reached};
pub use server::{Ready, Server};
pub use tunables::given as tunables_given;

use serde::Serialize;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_preload::counts::Counts;

use crate::{
    arms::command::{self, Metric, Ran, What, last_words},
    measure::{
        conditions::Conditions,
        experiment::Experiment,
        log::Log,
        sample::Sample,
        schedule::{Arm, Failure, Lineup, Sampled, Schedule},
        stats::Random,
    },
};
use folder::TrialFolder;
use run::TrialRunner;

pub struct Trial<'t> {
    /// The command that is measured, its name first.
    pub command: &'t [OsString],
    /// A server to keep up meanwhile: then it runs under the kernels, and the command does not.
    pub server: Option<&'t Server>,
    /// Names of kernels; all of this machine's without them.
    pub kernels: Option<&'t [String]>,
    /// What `tuned` is made of, where that was measured.
    pub bands: Option<&'t Bands>,
    /// Settings of glibc to try.
    pub tunables: Tunables,
    /// By what the program is judged.
    pub metric: &'t Metric,
    /// Rounds; each runs every arm once and one of them twice.
    pub rounds: usize,
    /// How long one run may take.
    pub limit: Option<Duration>,
    pub seed: u64,
    /// Asked whenever a run was interrupted, and between runs.
    pub stop: &'t dyn Fn() -> Result<(), Cancelled>,
    /// Told what is about to take long.
    pub say: &'t dyn Fn(&str),
}

/// Which settings of glibc take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tunables {
    /// Thresholds at the sizes of this machine's caches.
    Usual,
    These(Vec<Setting>),
}

/// What a trial showed.
#[derive(Debug, Serialize)]
pub struct TrialResult {
    /// What the kernels were put under.
    pub program: Program,
    pub metric: String,
    /// The noise of this run, as a fraction: what two runs of one arm differed by.
    pub noise: f64,
    pub rounds: usize,
    /// A row for every arm; the first is the program as it is.
    pub rows: Vec<Row>,
    /// Arms that did not take part.
    pub left_out: Vec<LeftOut>,
    /// What went through the object, counted in a run of its own; `None` if no kernel took part.
    pub reached: Option<Reached>,
    pub seed: u64,
    pub conditions: Conditions,
    pub log: Log,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// No such command, or none that can run.
    #[error("{name}: {why}")]
    NoProgram { name: String, why: String },
    #[error("no kernel of the name '{name}'; there are {known}")]
    NoKernel { name: String, known: String },
    /// Nothing but the program as it is.
    #[error("nothing to compare libc with: {0}")]
    NothingToTry(String),
    /// Nothing can be preloaded into the program.
    #[error("{0}")]
    Unreachable(String),
    /// This build carries no object.
    #[error("this build of thalweg has no object to preload: {0}")]
    NoObject(String),
    /// The folder for temporary files does not serve.
    #[error("{path}: {why}")]
    Folder { path: String, why: String },
    /// The program as it is does not do what can be measured.
    #[error("{0}")]
    Program(String),
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
}

pub fn run(trial: &Trial<'_>) -> Result<TrialResult, TrialError> {
    let client = Program::find(trial.command)?;
    let program = match trial.server {
        Some(server) => Program::find(&server.command)?,
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
            why.push("no other kernel and no threshold was named".to_owned());
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
            keeps_output: matches!(trial.metric.what, What::Printed(_)),
            must_succeed: true,
            limit: trial.limit,
            stop: trial.stop,
        },
    };
    let judged = Judged { runner: &runner, metric: trial.metric };
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

fn tunables(trial: &Trial<'_>, program: &Program, left_out: &mut Vec<LeftOut>) -> Vec<Setting> {
    if let Tunables::These(settings) = &trial.tunables {
        return settings.clone();
    }
    let loader = program.loader.as_deref().ok_or_else(|| "there is no loader".to_owned());
    loader.and_then(tunables::usual).unwrap_or_else(|reason| {
        left_out.push(LeftOut { name: "glibc's thresholds".to_owned(), reason });
        Vec::new()
    })
}

/// A runner and what its runs are judged by.
struct Judged<'t> {
    runner: &'t TrialRunner<'t>,
    metric: &'t Metric,
}

impl Judged<'_> {
    /// One run; its sample tells the number it is judged by.
    fn once(&self, setting: &Setting, counted: bool) -> Result<Ran, Failure> {
        let mut ran = self.runner.once(setting, counted)?;
        ran.sample.told = self.metric.of(&ran).map_err(|why| {
            let name = self.runner.command[0].display();
            format!("{name}: {why}")
        })?;
        Ok(ran)
    }
}

/// What the runs before the rounds showed.
struct Checked {
    /// Why an arm takes no part, by its place.
    failed: Vec<Option<String>>,
    /// What went through the object.
    reached: Option<Counts>,
}

/// Runs every arm once before anything counts: it warms up, shows what does not work at all, and
/// counts what goes through the object.
fn check(
    judged: &Judged<'_>,
    settings: &[Setting],
    trial: &Trial<'_>,
) -> Result<Checked, TrialError> {
    let began = Instant::now();
    let mut checked = Checked { failed: vec![None; settings.len()], reached: None };
    for (place, setting) in settings.iter().enumerate() {
        (trial.stop)()?;
        let is_kernel = matches!(setting.kind, Kind::Kernel { .. });
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
    (trial.say)(&format!("{arms} arms, {rounds} rounds, about {expected:.0} s"));
    Ok(checked)
}

/// Whether the object did what it was told in every process: an error if it was never started, a
/// reason against the arm if it refused its kernel.
fn doubts(counts: &Counts, setting: &Setting, ran: &Ran) -> Result<Option<String>, TrialError> {
    if counts.processes == 0 {
        let said = ran.err.lines().find(|line| line.contains("cannot be preloaded"));
        let said = said.map(last_words).map(|words| format!(" ({words})")).unwrap_or_default();
        return Err(TrialError::Unreachable(format!(
            "the object was never started in it{said}: the program cleans its environment, has no \
             /proc, or may not map files of TMPDIR"
        )));
    }
    if counts.chosen < counts.processes {
        let refused = counts.processes - counts.chosen;
        return Ok(Some(format!(
            "{refused} of {} processes did not take the kernel",
            counts.processes
        )));
    }
    let Kind::Kernel { copies, fills } = &setting.kind else { return Ok(None) };
    let needs_libc =
        [copies, fills].iter().any(|text| text.contains(thalweg_preload::choice::LIBC));
    Ok((needs_libc && counts.without_libc > 0)
        .then(|| "libc's own functions were not found behind the object".to_owned()))
}

/// An arm of the rounds.
struct Run<'t> {
    judged: &'t Judged<'t>,
    setting: &'t Setting,
    stop: &'t dyn Fn() -> Result<(), Cancelled>,
}

impl Arm for Run<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
        (self.stop)()?;
        Ok(self.judged.once(self.setting, false)?.sample)
    }
}

fn rounds(
    judged: &Judged<'_>,
    settings: &[Setting],
    checked: &Checked,
    trial: &Trial<'_>,
) -> Result<Log, Failure> {
    let mut experiment = Experiment::default();
    for (setting, failed) in settings.iter().zip(&checked.failed) {
        let arm = Sampled::once(Run { judged, setting, stop: trial.stop });
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
