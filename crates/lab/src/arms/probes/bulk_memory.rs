//! The memory in MiB that a bulk transfer uses in addition to the two data buffers: the proportional set size (PSS)
//! of both processes, in which shared pages count once. Parameters: bytes, and `way`, a table of parameters of the
//! work `bulk`.

use serde::Deserialize;
use thalweg_core::Unfit;

use crate::arms::{
    ArmJob, Probe, ProbeFinding, ProbeSpec,
    bulk::{BULK, extra_memory},
    parameters,
};

pub(in crate::arms) static BULK_MEMORY: Probe = Probe { name: "bulk-memory", parse };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkMemoryParameters {
    bytes: u64,
    way: toml::Table,
}

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: BulkMemoryParameters = parameters(BULK_MEMORY.name, with)?;
    (BULK.parse)(&with.way)?;
    Ok(Box::new(with))
}

impl ProbeSpec for BulkMemoryParameters {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let extra = extra_memory(&ArmJob { bytes: self.bytes, with: &self.way, ..*job })?;
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let (extra, data) = (mib(extra as f64), mib(self.bytes as f64));
        let text = format!("{extra:.2} MiB in addition to two buffers of {data:.1} MiB");
        Ok(ProbeFinding { numbers: vec![extra], text })
    }
}
