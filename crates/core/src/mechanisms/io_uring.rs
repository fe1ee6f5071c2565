//! Linked reads and writes through io_uring, with several pieces in flight in registered buffers.
//! The data is copied twice, as with read and write, but with fewer calls. This pays off if an
//! endpoint makes the caller wait.

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit,
    buffers::Amount,
    length_guard::LengthGuard,
    uring_pipeline::{self, PipelineJob, PipelineStop, UringPipeline},
};
use thalweg_sys::Errno;

/// Linked pairs of read and write on a ring.
pub struct IoUring;

static INFO: Info = Info {
    name: "io-uring",
    summary: "linked reads and writes by io_uring, several at once",
    calls: &["io_uring_enter", "IORING_OP_READ", "IORING_OP_WRITE"],
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Null, Guarantees::COPIED),
    ],
    knobs: &[
        Knob {
            name: "depth",
            summary: "blocks in progress at once",
            unit: Unit::Count,
            values: &[4, 1, 2, 8, 16],
        },
        Knob {
            name: "buffer",
            summary: "bytes per block (one read and one write)",
            unit: Unit::Bytes,
            values: &[256 << 10, 64 << 10, 1 << 20],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct IoUringMover<'a> {
    // Dropped before the other fields, so that no request in flight uses them. `None` after an
    // error of the ring.
    lanes: Option<UringPipeline<'a>>,
    source: End<'a>,
    sink: End<'a>,
    growth: LengthGuard,
}

impl Mechanism for IoUring {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because(
                "on O_APPEND destinations, several blocks in progress would be appended in any order",
            ));
        }
        if !facts.source.addressed || (facts.sink.kind == Kind::File && !facts.sink.addressed) {
            return Err(Unfit::because("needs files or devices that can seek"));
        }
        uring_pipeline::fits(facts)
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let amount = Amount::of(&t);
        let (source, sink) = t.descriptors(&INFO)?;
        if sink.at.is_none() && sink.kind != Kind::Null {
            return Err(INFO.error("open", Side::Sink, Errno::SPIPE, 0));
        }
        let growth = LengthGuard::of(&sink).map_err(|e| INFO.error("fstat", Side::Sink, e, 0))?;
        let lanes = Some(UringPipeline::new(&INFO, tuning, amount, 1)?);
        Ok(Box::new(IoUringMover { lanes, source, sink, growth }))
    }
}

impl Mover for IoUringMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let at =
            self.source.at.ok_or(INFO.error("IORING_OP_READ", Side::Source, Errno::SPIPE, 0))?;
        let job = PipelineJob {
            source: (self.source.fd.into(), at),
            sink: (self.sink.fd.into(), self.sink.at),
            len: budget,
        };
        let broken = INFO.error("io_uring_enter", Side::Own, Errno::BADF, 0);
        let answer = self.lanes.as_mut().ok_or(broken)?.run(&job);
        if answer.is_err() {
            self.lanes = None;
        }
        let (moved, scattered) = answer.as_ref().map_or((0, true), |f| (f.moved, f.scattered));
        self.source.forward(moved);
        self.sink.forward(moved);
        if scattered {
            let settled = self.growth.settle(&self.sink);
            settled.map_err(|e| INFO.error("ftruncate", Side::Sink, e, moved))?;
        }
        match answer?.stop {
            Some(PipelineStop::Failed(call, side, errno)) => {
                Err(INFO.error(call, side, errno, moved))
            }
            Some(PipelineStop::End | PipelineStop::Ragged) | None => Ok(moved),
        }
    }
}
