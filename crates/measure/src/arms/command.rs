//! Runs a whole program in a new process for each sample. `thalweg trial`, [`crate::compare`], studies and tuning all
//! run external commands with this module.
//!
//! A sample includes starting the process, and the resource usage of the process and of the children that it waited
//! for. It excludes creating the files for its output.

mod child;
mod lookup;
mod metric;
mod outputs;
mod started;

pub use lookup::{fill, find};
pub use metric::{BetterDirection, MeasuredValue, RunMetric};

pub use child::{end, wait, watch};
pub use outputs::{Outputs, last_words};

use std::{
    process::{Command, Stdio},
    time::Duration,
};
use thalweg_core::Cancelled;
use thalweg_sys::process::{self, Ended};

use crate::{
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
};

/// The parameters for running commands.
#[derive(Clone, Copy)]
pub struct CommandRunner<'r> {
    /// Files for the output of commands.
    pub outputs: &'r Outputs,
    /// `true` if standard output is kept, in the file `out`. Standard error is always kept, in `err`.
    pub keeps_output: bool,
    /// `true` if an exit status other than 0 is a failure.
    pub must_succeed: bool,
    /// Maximum duration of one run.
    pub limit: Option<Duration>,
    /// Called after each signal.
    pub stop: &'r dyn Fn() -> Result<(), Cancelled>,
}

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The cost of the run, and the activity of the machine during it.
    pub sample: Sample,
    /// The largest resident set size of a process of the run, in bytes.
    pub max_resident: u64,
    /// The largest resident set size of thalweg itself, in bytes. The child has this memory until execve(2), so a
    /// `max_resident` up to this size may be that of thalweg.
    pub hidden_below: u64,
    /// Standard output, if it was kept.
    pub out: String,
    pub err: String,
}

impl<'r> CommandRunner<'r> {
    /// Creates a runner for commands that copy files. Their output is only read if they fail.
    pub fn of_copies(outputs: &'r Outputs, stop: &'r dyn Fn() -> Result<(), Cancelled>) -> Self {
        Self { outputs, keeps_output: false, must_succeed: true, limit: None, stop }
    }

    /// Runs a command to its end, with empty standard input.
    pub fn once(&self, command: &mut Command) -> Result<Ran, SampleFailure> {
        command.stdin(Stdio::null()).stderr(self.outputs.create("err")?);
        if self.keeps_output {
            command.stdout(self.outputs.create("out")?);
        } else {
            command.stdout(Stdio::null());
        }
        let name = command.get_program().display().to_string();
        let hidden_below = process::own_max_resident().unwrap_or(0);
        let meter = SampleMeter::start();
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let ended = wait(child, self.limit, self.stop).map_err(|failure| match failure {
            SampleFailure::Unfit(unfit) => format!("{name}: {unfit}").into(),
            SampleFailure::Cancelled => SampleFailure::Cancelled,
        })?;
        let sample = meter.stop(0);
        if ended.status.success() || !self.must_succeed {
            let mut ran = Ran {
                sample,
                hidden_below,
                out: if self.keeps_output { self.outputs.read("out") } else { String::new() },
                err: self.outputs.read("err"),
                ..Ran::default()
            };
            ran.used_by(&ended);
            return Ok(ran);
        }
        // An interrupt from the keyboard ends the program too. That is a cancellation, not a failure.
        (self.stop)()?;
        let said = match last_words(&self.outputs.read("err")) {
            words if words.is_empty() => "it printed nothing on standard error".to_owned(),
            words => words,
        };
        Err(format!("{name}: {}: {said}", ended.status).into())
    }
}

impl Ran {
    /// Replaces the resource usage with that of an ended process. The wall time stays.
    pub fn used_by(&mut self, ended: &Ended) {
        self.sample = self.sample.using(&ended.used);
        self.max_resident = ended.max_resident;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use thalweg_sys::usage::Usage;

    #[test]
    fn a_run_has_what_its_process_used_and_what_happened_to_the_machine_meanwhile() {
        let before = Sample {
            wall: Duration::from_millis(5),
            stolen_ticks: 3,
            dirtied_pages: 4,
            minor_faults: 99,
            ..Sample::default()
        };
        let mut ran = Ran { sample: before, ..Ran::default() };
        let used = Usage { sys: Duration::from_millis(2), minor_faults: 7, ..Usage::default() };
        let status = std::process::ExitStatus::from_raw(0);
        ran.used_by(&Ended { status, used, max_resident: 11 });
        let sample = ran.sample;
        assert_eq!((sample.wall, sample.stolen_ticks, sample.dirtied_pages), (before.wall, 3, 4));
        assert_eq!((sample.sys, sample.minor_faults), (used.sys, 7));
        assert_eq!(ran.max_resident, 11);
    }

    #[test]
    fn a_command_is_run_to_its_end_and_what_it_prints_is_there() {
        let outputs = Outputs::new("command-test").unwrap();
        let runner =
            CommandRunner { keeps_output: true, ..CommandRunner::of_copies(&outputs, &|| Ok(())) };
        let mut command = Command::new("sh");
        let ran = runner.once(command.args(["-c", "echo out; echo err >&2"])).unwrap();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
        assert!(ran.sample.wall > Duration::ZERO && ran.sample.minor_faults > 0);
        let mut command = Command::new("sh");
        let failed = runner.once(command.args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let reason = failed.unfit().unwrap().reason;
        assert!(reason.contains("exit status: 3") && reason.contains("why"), "{reason}");
    }
}
