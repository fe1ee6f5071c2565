//! A program of which each operation is done by a process of its own: no code of it has been
//! compiled, no memory touched by an earlier one. What is timed is still what the program times
//! itself; starting it is left out.

use thalweg_core::{Guarantees, Unfit};

use super::{Arm, Launch, Running};
use crate::measure::{sample::Sample, schedule::Failure};

/// An arm whose processes live for one operation.
pub(super) struct Cold {
    launch: Launch,
    /// Why the calls of the last one were not counted.
    uncounted: Option<String>,
}

impl Cold {
    /// Of a program that is known to start.
    pub fn of(launch: Launch) -> Self {
        Self { launch, uncounted: None }
    }

    /// A new process, with its memory in place.
    fn ready(&self) -> Result<Running, Unfit> {
        let mut running = self.launch.start()?;
        running.warm_up().map(|()| running)
    }
}

impl Arm for Cold {
    fn promises(&self) -> Option<Guarantees> {
        self.launch.promises
    }

    /// A new process faults for its own pages.
    fn is_fresh(&self) -> bool {
        true
    }

    /// What all of them read, files in the page cache, is warm after the first.
    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.ready().map(|_| ())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, Failure> {
        Sample::sum(repeats, 1, |_| {
            let mut running = self.ready()?;
            let sample = running.sample(1)?;
            self.uncounted = running.calls_uncounted();
            Ok(sample)
        })
    }

    fn calls_uncounted(&self) -> Option<String> {
        self.uncounted.clone()
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.ready()?.check()
    }
}
