//! Compares the memory of two methods: two workers do the work once, and their proportional set sizes (PSS) are
//! compared. Shared pages count once.

use serde::Deserialize;
use thalweg_core::Unfit;

use crate::arms::{
    Arm, ArmJob, Probe, ProbeFinding, ProbeSpec, parameters,
    worker::{RunningWorker, WORKER},
};

/// The memory of one worker divided by that of another.
pub(in crate::arms) static WORKER_MEMORY: Probe = Probe { name: "worker-memory", parse };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerMemoryParameters {
    bytes: u64,
    /// Two tables of parameters of the work `worker`.
    first: toml::Table,
    second: toml::Table,
}

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: WorkerMemoryParameters = parameters(WORKER_MEMORY.name, with)?;
    (WORKER.parse)(&with.first)?;
    (WORKER.parse)(&with.second)?;
    Ok(Box::new(with))
}

impl ProbeSpec for WorkerMemoryParameters {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let job = ArmJob { bytes: self.bytes, ..*job };
        let first = peak(&ArmJob { with: &self.first, ..job })?;
        let second = peak(&ArmJob { with: &self.second, ..job })?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let text = format!(
            "{:.1} MiB against {:.1} MiB for {:.1} MiB of data",
            mib(first),
            mib(second),
            mib(self.bytes)
        );
        Ok(ProbeFinding { numbers: vec![first as f64 / second as f64], text })
    }
}

/// Returns the memory of a worker that has just done its work, and is ready to repeat it.
fn peak(job: &ArmJob<'_>) -> Result<u64, Unfit> {
    let mut running = RunningWorker::start(job)?;
    running.warm_up()?;
    running.check()?;
    let unknown =
        || Unfit::because("the worker cannot read its memory usage (/proc/self/smaps_rollup)");
    running.memory()?.ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_buffer_in_the_middle_shows() {
        let scratch = tempfile::tempdir().unwrap();
        let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let with = toml::toml! {
            bytes = 16_777_216
            first = { program = "programs/between.c", args = ["way=vmsplice"] }
            second = { program = "programs/between.c", args = ["way=shm"] }
        };
        let job = ArmJob {
            arm: "memory",
            with: &with,
            bytes: 0,
            scratch: scratch.path(),
            studies: &studies,
            program: Path::new("thalweg"),
        };
        let found = WORKER_MEMORY.run(&job);
        let found = match found {
            Ok(found) => found,
            Err(unfit) if unfit.reason.contains("C compiler") => {
                return crate::arms::tests::skip("memory of workers", &unfit.reason);
            }
            Err(unfit) => panic!("{}", unfit.reason),
        };
        // One worker has two buffers and the other three; the programs' own memory adds to both.
        assert!(found.numbers[0] > 0.6 && found.numbers[0] < 0.75, "{found:?}");
        assert!(found.text.contains("16.0 MiB of data"), "{}", found.text);
        let wrong = toml::toml! { bytes = 1 };
        assert!(WORKER_MEMORY.run(&ArmJob { with: &wrong, ..job }).is_err());
    }
}
