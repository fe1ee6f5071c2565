//! Linked reads and writes through io_uring, with several pieces in flight in registered buffers.
//! The data is copied twice, as with read and write, but with fewer calls. This pays off if an
//! endpoint makes the caller wait.

use crate::{
    Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit,
    buffers::Amount,
    uring_pipeline::{self, EndsPipeline, PipelineJob, UringPipeline},
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

struct IoUringMover<'a>(EndsPipeline<'a>);

impl Mechanism for IoUring {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        uring_pipeline::fits(facts)?;
        if !facts.source.addressed || (facts.sink.kind == Kind::File && !facts.sink.addressed) {
            return Err(Unfit::because("needs files or devices that can seek"));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let amount = Amount::of(&t);
        let (source, sink) = t.descriptors(&INFO)?;
        if sink.at.is_none() && sink.kind != Kind::Null {
            return Err(INFO.error("open", Side::Sink, Errno::SPIPE, 0));
        }
        let lanes = UringPipeline::new(&INFO, tuning, amount, 1)?;
        Ok(Box::new(IoUringMover(EndsPipeline::new(lanes, source, sink)?)))
    }
}

impl Mover for IoUringMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let (source, sink) = (self.0.source, self.0.sink);
        let at = source.at.ok_or(INFO.error("IORING_OP_READ", Side::Source, Errno::SPIPE, 0))?;
        let job = PipelineJob {
            source: (source.fd.into(), at),
            sink: (sink.fd.into(), sink.at),
            len: budget,
        };
        self.0.run(&job).map(|front| front.moved)
    }
}
