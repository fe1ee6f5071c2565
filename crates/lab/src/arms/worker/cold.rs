//! A program that performs each operation in a new process. No earlier operation has then compiled
//! its code or touched its memory. The program still measures its own time; starting it is not
//! included.

use thalweg_core::{Guarantees, Unfit};

use super::{Arm, Launch, RunningWorker};
use thalweg_measure::{sample::Sample, schedule::SampleFailure};

/// An arm (a compared variant) that starts a process for each operation.
pub(super) struct ColdWorker {
    launch: Launch,
    /// The reason why the calls of the last operation were not counted.
    uncounted: Option<String>,
}

impl ColdWorker {
    /// Creates the arm for a program that is known to start.
    pub fn of(launch: Launch) -> Self {
        Self { launch, uncounted: None }
    }

    /// Starts a new process and warms up its memory.
    fn ready(&self) -> Result<RunningWorker, Unfit> {
        let mut running = self.launch.start()?;
        running.warm_up().map(|()| running)
    }
}

impl Arm for ColdWorker {
    fn promises(&self) -> Option<Guarantees> {
        self.launch.promises
    }

    /// Returns `true`: each operation starts a new process, which faults on its own pages.
    fn is_fresh(&self) -> bool {
        true
    }

    /// Warms the page cache with the files that all processes read.
    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.ready().map(|_| ())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        Sample::of_batches(repeats, 1, |_| {
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
