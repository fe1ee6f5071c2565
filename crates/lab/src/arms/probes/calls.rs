//! The probe `calls-per-buffer`: the number of system calls per buffer when sending a file to a socket, counted at
//! the call site. Parameters: mechanism, buffer, sink = "unix" or "tcp".

use serde::Deserialize;
use thalweg_core::{
    Facts, Guarantees, Mechanism, Sink, Source, Transfer, Tuning, Unfit, Unit, mechanisms,
    quantity::Size,
};
use thalweg_sys::tally;

use crate::arms::{ArmJob, Probe, ProbeFinding, ProbeSpec, parameters};
use thalweg_measure::arms::{
    content,
    transfer::{StreamKind, StreamPeer, end_of, move_exactly},
};

pub(in crate::arms) static CALLS_PER_BUFFER: Probe = Probe { name: "calls-per-buffer", parse };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallsParameters {
    mechanism: String,
    buffer: Size,
    #[serde(default)]
    sink: CallsSink,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CallsSink {
    #[default]
    Tcp,
    Unix,
}

/// Number of buffers: so many that one extra call at the end does not look like one call per buffer.
const BUFFERS: u64 = 64;

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: CallsParameters = parameters(CALLS_PER_BUFFER.name, with)?;
    with.mechanism_and_total()?;
    Ok(Box::new(with))
}

impl CallsParameters {
    /// Returns the mechanism, and the bytes of all buffers.
    fn mechanism_and_total(&self) -> Result<(&'static dyn Mechanism, u64), Unfit> {
        let text = |what| Unfit::because(format!("probe calls-per-buffer: {what}"));
        let mechanism = mechanisms::by_name(&self.mechanism);
        let mechanism = mechanism.ok_or_else(|| text("no such mechanism"))?;
        let total = self.buffer.0.checked_mul(BUFFERS);
        let total = total.filter(|total| (1..=1 << 30).contains(total));
        Ok((mechanism, total.ok_or_else(|| text("buffer must be 1 byte to 16 MiB"))?))
    }
}

impl ProbeSpec for CallsParameters {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let Self { mechanism: name, buffer: Size(buffer), sink: to } = self;
        let buffer = *buffer;
        let (mechanism, total) = self.mechanism_and_total()?;
        let knob =
            mechanism.info().knobs.iter().any(|k| k.name == "buffer" && k.unit == Unit::Bytes);
        let tuning = if knob { Tuning::of("buffer", buffer) } else { Tuning::default() };
        let file = content::file(job.scratch, total);
        let file = file.map_err(|e| Unfit::because(format!("cannot create the source: {e}")))?;
        let stream = match to {
            CallsSink::Tcp => StreamKind::Tcp,
            CallsSink::Unix => StreamKind::Unix,
        };
        let reader = StreamPeer::draining(stream);
        let reader = reader.map_err(|e| {
            Unfit::because(format!("cannot create the sockets and their reader: {e}"))
        })?;
        reader.begin(total, 1, true)?;
        let transfer = Transfer {
            source: Source::Fd(end_of(&file)?),
            sink: Sink::Fd(end_of(&reader.near)?),
            len: Some(total),
            needs: Guarantees::SHARED,
        };
        mechanism.fits(&Facts::of(&transfer))?;
        let mut mover = mechanism.open(transfer, &tuning)?;
        let before = tally::calls();
        let moved = (0..BUFFERS).try_for_each(|_| move_exactly(mover.as_mut(), buffer));
        let counted = tally::calls() - before;
        drop(mover);
        moved?;
        reader.wait(&|| Ok(()))?;
        let each = counted as f64 / BUFFERS as f64;
        let text = format!("{name}: {counted} calls for {BUFFERS} buffers of {buffer} bytes");
        Ok(ProbeFinding { numbers: vec![each], text })
    }
}
