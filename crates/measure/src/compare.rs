//! Compares arbitrary commands. As with the arms (compared variants) of a study, each round runs all commands in random
//! order, and one of them a second time.
//!
//! A tool that runs one command a hundred times and then the next mistakes a drift of the machine for a difference
//! between the commands. Here each command is compared with runs at about the same time.

mod found;

pub use found::{CompareResult, CompareRow, ComparedFigure};

use std::{
    cell::Cell,
    ffi::OsString,
    fs, io,
    process::Command,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;

use crate::{
    arms::{
        command::{CommandRunner, MeasuredValue, Outputs, RunMetric, find},
        content::first_difference_of_files,
    },
    busy::BusyProcessors,
    experiment::Experiment,
    sample::Sample,
    schedule::{Arm, Lineup, SampleFailure, SampledArm, Schedule},
    stats::Random,
};

/// Minimum number of rounds for short commands; enough to show a difference of 5 % on a quiet machine.
const LEAST_ROUNDS: usize = 20;
/// Maximum number of rounds; more would not improve the result.
const MOST_ROUNDS: usize = 1000;

/// A command that takes part.
#[derive(Clone, Debug)]
pub struct ComparedCommand {
    pub name: String,
    /// The command line, program first.
    pub words: Vec<OsString>,
    /// The index of the command it is compared with; `None` for the reference.
    pub against: Option<usize>,
    /// Command to run before each run, outside the timed part; empty for none.
    pub prepare: Vec<OsString>,
    /// Command to run after each run, outside the timed part. It must succeed. Empty for none.
    pub check: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    Fixed(usize),
    /// Enough for the slowest command to run for this total time, between `LEAST_ROUNDS` and `MOST_ROUNDS`.
    AtLeast(Duration),
}

pub struct CompareJob<'c> {
    pub contenders: &'c [ComparedCommand],
    /// The metric that decides. The results also contain wall time and CPU time.
    pub metric: &'c RunMetric,
    /// The number of rounds. Each runs every command once, and one of them a second time.
    pub rounds: Rounds,
    /// Number of warm-up runs of each command, at least one. They do not count, but show which commands fail.
    pub warm_ups: usize,
    /// `true` if standard output must equal that of the first run of the reference command.
    pub same_output: bool,
    /// `true` if a status other than 0 is a failure.
    pub must_succeed: bool,
    /// Maximum duration of one run.
    pub limit: Option<Duration>,
    pub seed: u64,
    /// Called between runs, and after an interrupted run.
    pub stop: &'c dyn Fn() -> Result<(), Cancelled>,
    /// Called with the number of finished runs and the total number.
    pub watch: &'c dyn Fn(usize, usize),
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The command does not exist or cannot be executed.
    #[error("{name}: {why}")]
    NoProgram { name: String, why: String },
    /// The directory for temporary files is not usable.
    #[error("{path}: {why}")]
    Folder { path: String, why: String },
    /// No command could be measured.
    #[error("{0}")]
    Failed(String),
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
}

pub fn run(compare: &CompareJob<'_>) -> Result<CompareResult, CompareError> {
    for contender in compare.contenders {
        for words in [&contender.words, &contender.prepare, &contender.check] {
            let Some(name) = words.first() else { continue };
            find(name)
                .map_err(|why| CompareError::NoProgram { name: name.display().to_string(), why })?;
        }
    }
    let busy = BusyProcessors::now();
    let outputs = Outputs::new("compare").map_err(|(parent, error)| CompareError::Folder {
        path: parent.display().to_string(),
        why: error.to_string(),
    })?;
    let runner = CommandRunner {
        outputs: &outputs,
        keeps_output: compare.same_output
            || matches!(compare.metric.what, MeasuredValue::Printed(_)),
        must_succeed: compare.must_succeed,
        limit: compare.limit,
        stop: compare.stop,
    };
    let count = RunCount::default();
    let mut experiment = Experiment::default();
    for (number, contender) in compare.contenders.iter().enumerate() {
        let expected = format!("expected-{}", contender.against.unwrap_or(number));
        let arm = CommandArm { contender, expected, compare, runner: &runner, count: &count };
        experiment.enter(&contender.name, SampledArm::once(arm));
    }
    let longest = warm_up(&mut experiment, compare)?;
    let rounds = compare.rounds.number(longest);
    let active = experiment.active();
    count.done.set(0);
    count.all.set(rounds * (active.len() + 1));
    let random = &mut Random::new(compare.seed);
    let schedule = &mut Schedule::fixed(rounds, compare.stop, random);
    let ran = experiment.run(schedule, Lineup::of_equals(active));
    ran.or_else(|failure| Err(CompareError::Failed(failure.unfit()?.reason)))?;
    Ok(CompareResult::of(compare, busy, experiment.log))
}

/// Performs the warm-up runs. Commands that fail are excluded. Returns the longest duration of a run.
fn warm_up(
    experiment: &mut Experiment<'_>,
    compare: &CompareJob<'_>,
) -> Result<Duration, CompareError> {
    let mut longest = Duration::ZERO;
    for number in experiment.active() {
        for _ in 0..compare.warm_ups.max(1) {
            let began = Instant::now();
            if let Err(failure) = experiment.arms[number].arm.sample(1) {
                experiment.fail(number, failure.unfit()?.reason);
                break;
            }
            longest = longest.max(began.elapsed());
        }
    }
    if experiment.active().is_empty() {
        let failed = experiment.log.arms.iter().filter_map(|arm| arm.dropped.clone());
        return Err(CompareError::Failed(failed.collect::<Vec<_>>().join("; ")));
    }
    Ok(longest)
}

impl Rounds {
    /// Returns the number of rounds, given the duration of the slowest command.
    fn number(self, longest: Duration) -> usize {
        match self {
            Self::Fixed(rounds) => rounds,
            Self::AtLeast(time) => {
                let needed = time.as_secs_f64() / longest.as_secs_f64().max(1e-6);
                (needed.ceil() as usize).clamp(LEAST_ROUNDS, MOST_ROUNDS)
            }
        }
    }
}

/// The number of finished runs and the total number, which is 0 during warm-up.
#[derive(Default)]
struct RunCount {
    done: Cell<usize>,
    all: Cell<usize>,
}

struct CommandArm<'c> {
    contender: &'c ComparedCommand,
    /// The file with the expected output.
    expected: String,
    compare: &'c CompareJob<'c>,
    runner: &'c CommandRunner<'c>,
    count: &'c RunCount,
}

impl Arm for CommandArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
        (self.compare.stop)()?;
        self.beside("prepare", &self.contender.prepare)?;
        let mut ran = self.runner.once(&mut command(&self.contender.words))?;
        ran.sample.reported = self
            .compare
            .metric
            .of(&ran)
            .map_err(|why| format!("{}: {why}", self.contender.name))?;
        if self.compare.same_output {
            self.compare_output()?;
        }
        self.beside("check", &self.contender.check)?;
        self.count.done.set(self.count.done.get() + 1);
        (self.compare.watch)(self.count.done.get(), self.count.all.get());
        Ok(ran.sample)
    }
}

impl CommandArm<'_> {
    /// Runs the `prepare` or `check` command of a run. That command must succeed.
    fn beside(&self, what: &str, words: &[OsString]) -> Result<(), SampleFailure> {
        if words.is_empty() {
            return Ok(());
        }
        let runner = CommandRunner { keeps_output: false, must_succeed: true, ..*self.runner };
        runner.once(&mut command(words)).map(|_| ()).map_err(|failure| match failure {
            SampleFailure::Unfit(unfit) => {
                format!("{}: --{what} failed: {unfit}", self.contender.name).into()
            }
            SampleFailure::Cancelled => SampleFailure::Cancelled,
        })
    }

    /// Compares the output with that of the first run, byte by byte.
    fn compare_output(&self) -> Result<(), String> {
        let outputs = self.runner.outputs;
        let (out, expected) = (outputs.path("out"), outputs.path(&self.expected));
        let failed = |error: io::Error| format!("{}: {error}", out.display());
        if !expected.exists() {
            return fs::rename(&out, &expected).map_err(failed);
        }
        match first_difference_of_files(&out, &expected).map_err(failed)? {
            None => Ok(()),
            // Byte positions start at 1, as in cmp(1).
            Some(at) => Err(format!(
                "{}: its output differs from the first output at byte {}",
                self.contender.name,
                at + 1
            )),
        }
    }
}

fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

#[cfg(test)]
mod tests;
