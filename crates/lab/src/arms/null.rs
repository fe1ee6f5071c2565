//! The work `null`: does nothing. Its samples show the overhead of the harness.

use std::hint::black_box;
use thalweg_core::Unfit;

use super::{Arm, ArmJob, ArmKind, Spec, known};
use thalweg_measure::{
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
};

pub(super) static NULL: ArmKind = ArmKind { name: "null", parse };

struct NullSpec;

/// The number of bytes that an operation pretends to move.
struct Nothing(u64);

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    known(with, &[])?;
    Ok(Box::new(NullSpec))
}

impl Spec for NullSpec {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        Ok(Box::new(Nothing(job.bytes)))
    }
}

impl Arm for Nothing {
    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        let meter = SampleMeter::start();
        for n in 0..repeats {
            black_box(n);
        }
        Ok(meter.stop(self.0.saturating_mul(u64::from(repeats))))
    }
}
