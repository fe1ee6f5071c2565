//! A whole program, started anew and run to its end for each sample: what [`crate::probes::trial`] and
//! [`crate::probes::compare`] do with commands.

mod child;
mod lookup;
mod metric;
mod outputs;
mod started;

pub use lookup::{fill, find};
pub use metric::{Better, Metric, What};

pub(crate) use child::{end, wait, watch};
pub(crate) use outputs::{Outputs, last_words};

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::process::{self, Ended};

use crate::measure::{sample::Sample, schedule::Failure};

/// How commands are run.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'r> {
    /// Where their output goes.
    pub outputs: &'r Outputs,
    /// Whether standard output is kept, in the file `out`; standard error always is, in `err`.
    pub keeps_output: bool,
    /// Whether a command that ends with another status than 0 has failed.
    pub must_succeed: bool,
    /// How long one run may take.
    pub limit: Option<Duration>,
    /// Asked whenever a signal came.
    pub stop: &'r dyn Fn() -> Result<(), Cancelled>,
}

/// What one run gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    /// Time on the clock, processor time, faults and switches.
    pub sample: Sample,
    /// The most memory one of its processes had resident, in bytes.
    pub max_resident: u64,
    /// Up to here the kernel shows the memory of this process instead.
    pub hidden_below: u64,
    /// Standard output, if it was kept.
    pub out: String,
    pub err: String,
}

impl Runner<'_> {
    /// Runs a command to its end, with nothing on its standard input.
    pub fn once(&self, command: &mut Command) -> Result<Ran, Failure> {
        command.stdin(Stdio::null()).stderr(self.outputs.create("err")?);
        if self.keeps_output {
            command.stdout(self.outputs.create("out")?);
        } else {
            command.stdout(Stdio::null());
        }
        let name = command.get_program().display().to_string();
        let hidden_below = process::own_max_resident().unwrap_or(0);
        let began = Instant::now();
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let ended = wait(child, self.limit, self.stop).map_err(|failure| match failure {
            Failure::Unfit(unfit) => format!("{name}: {unfit}").into(),
            Failure::Cancelled => Failure::Cancelled,
        })?;
        let wall = began.elapsed();
        if ended.status.success() || !self.must_succeed {
            return Ok(self.ran(wall, &ended, hidden_below));
        }
        // An interrupt from the keyboard ends the program too: that is no failure of it.
        (self.stop)()?;
        let said = match last_words(&self.outputs.read("err")) {
            words if words.is_empty() => "it said nothing on standard error".to_owned(),
            words => words,
        };
        Err(format!("{name}: {}: {said}", ended.status).into())
    }

    fn ran(&self, wall: Duration, ended: &Ended, hidden_below: u64) -> Ran {
        let mut ran = Ran {
            hidden_below,
            out: if self.keeps_output { self.outputs.read("out") } else { String::new() },
            err: self.outputs.read("err"),
            ..Ran::default()
        };
        ran.sample.wall = wall;
        ran.used_by(ended);
        ran
    }
}

impl Ran {
    /// Counts what another process used instead, and leaves the time on the clock.
    pub fn used_by(&mut self, ended: &Ended) {
        let used = ended.used;
        self.sample = Sample {
            wall: self.sample.wall,
            user: used.user,
            sys: used.sys,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            ..Sample::default()
        };
        self.max_resident = ended.max_resident;
    }
}
