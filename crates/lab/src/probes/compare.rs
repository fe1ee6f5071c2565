//! Any commands, judged as arms are: interleaved in random order, one of them twice in each round.
//!
//! A tool that runs one command a hundred times and then the next takes a drift of the machine for a
//! difference between the commands. Here each command is compared with what ran right beside it.

mod found;

pub use found::{Comparison, Figure, Row};

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
        command::{CommandRunner, Metric, Outputs, What, find},
        content::first_difference_of_files,
    },
    measure::{
        busy::Busy,
        experiment::Experiment,
        sample::Sample,
        schedule::{Arm, Failure, Lineup, Sampled, Schedule},
        stats::Random,
    },
};

/// Rounds of short commands: so many show a twentieth of the time on a quiet machine.
const LEAST_ROUNDS: usize = 20;
/// Beyond so many there is nothing more to learn.
const MOST_ROUNDS: usize = 1000;

/// A command that takes part.
#[derive(Clone, Debug)]
pub struct Contender {
    pub name: String,
    /// Its words, the program first.
    pub words: Vec<OsString>,
    /// The place of the command it is compared with; none for that one itself.
    pub against: Option<usize>,
    /// Run before each run of it, outside the timed part; empty for nothing.
    pub prepare: Vec<OsString>,
    /// Run after each run of it, outside the timed part: it must succeed. Empty for nothing.
    pub check: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    Fixed(usize),
    /// As often as the slowest command needs to run for so long in all, and often enough.
    AtLeast(Duration),
}

pub struct Compare<'c> {
    pub contenders: &'c [Contender],
    /// By what they are judged, besides time on the clock and processor time.
    pub metric: &'c Metric,
    /// How often each runs; one of them once more in each round.
    pub rounds: Rounds,
    /// Runs of each command that do not count, at least one: they show what does not work.
    pub warm_ups: usize,
    /// Whether standard output must be that of the first run of the command it is compared with.
    pub same_output: bool,
    /// Whether a status other than 0 is a failure.
    pub must_succeed: bool,
    /// How long one run may take.
    pub limit: Option<Duration>,
    pub seed: u64,
    /// Asked between runs, and whenever a run was interrupted.
    pub stop: &'c dyn Fn() -> Result<(), Cancelled>,
    /// Told how many runs are done, of how many.
    pub watch: &'c dyn Fn(usize, usize),
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// No such command, or none that can run.
    #[error("{name}: {why}")]
    NoProgram { name: String, why: String },
    /// The folder for temporary files does not serve.
    #[error("{path}: {why}")]
    Folder { path: String, why: String },
    /// No command could be measured.
    #[error("{0}")]
    Failed(String),
    #[error("stopped")]
    Cancelled(#[from] Cancelled),
}

pub fn run(compare: &Compare<'_>) -> Result<Comparison, CompareError> {
    for contender in compare.contenders {
        for words in [&contender.words, &contender.prepare, &contender.check] {
            let Some(name) = words.first() else { continue };
            find(name)
                .map_err(|why| CompareError::NoProgram { name: name.display().to_string(), why })?;
        }
    }
    let busy = Busy::now();
    let outputs = Outputs::new("compare").map_err(|(parent, error)| CompareError::Folder {
        path: parent.display().to_string(),
        why: error.to_string(),
    })?;
    let runner = CommandRunner {
        outputs: &outputs,
        keeps_output: compare.same_output || matches!(compare.metric.what, What::Printed(_)),
        must_succeed: compare.must_succeed,
        limit: compare.limit,
        stop: compare.stop,
    };
    let count = Count::default();
    let mut experiment = Experiment::default();
    for (number, contender) in compare.contenders.iter().enumerate() {
        let expected = format!("expected-{}", contender.against.unwrap_or(number));
        let arm = CommandArm { contender, expected, compare, runner: &runner, count: &count };
        experiment.enter(&contender.name, Sampled::once(arm));
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
    Ok(Comparison::of(compare, busy, experiment.log))
}

/// The runs that do not count. What fails in them takes no further part; the longest time of a run is
/// returned.
fn warm_up(
    experiment: &mut Experiment<'_>,
    compare: &Compare<'_>,
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
    /// Their number, where the slowest command takes so long.
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

/// Runs done, of how many; of none while the commands warm up.
#[derive(Default)]
struct Count {
    done: Cell<usize>,
    all: Cell<usize>,
}

struct CommandArm<'c> {
    contender: &'c Contender,
    /// The file with what it should print.
    expected: String,
    compare: &'c Compare<'c>,
    runner: &'c CommandRunner<'c>,
    count: &'c Count,
}

impl Arm for CommandArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
        (self.compare.stop)()?;
        self.beside("prepare", &self.contender.prepare)?;
        let mut ran = self.runner.once(&mut command(&self.contender.words))?;
        ran.sample.told = self
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
    /// Runs what comes before or after, which must succeed.
    fn beside(&self, what: &str, words: &[OsString]) -> Result<(), Failure> {
        if words.is_empty() {
            return Ok(());
        }
        let runner = CommandRunner { keeps_output: false, must_succeed: true, ..*self.runner };
        runner.once(&mut command(words)).map(|_| ()).map_err(|failure| match failure {
            Failure::Unfit(unfit) => {
                format!("{}: --{what} failed: {unfit}", self.contender.name).into()
            }
            Failure::Cancelled => Failure::Cancelled,
        })
    }

    /// The first output is what all others must be, byte by byte.
    fn compare_output(&self) -> Result<(), String> {
        let outputs = self.runner.outputs;
        let (out, expected) = (outputs.path("out"), outputs.path(&self.expected));
        let failed = |error: io::Error| format!("{}: {error}", out.display());
        if !expected.exists() {
            return fs::rename(&out, &expected).map_err(failed);
        }
        match first_difference_of_files(&out, &expected).map_err(failed)? {
            None => Ok(()),
            // Bytes are counted from 1, as cmp does.
            Some(at) => Err(format!(
                "{}: its output differs from the first one at byte {}",
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
