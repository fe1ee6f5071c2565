//! Moves nothing and makes no system call: it measures the overhead of the harness.

use crate::{
    Error, Guarantees, Info, Kind, Mechanism, Mover, Nature, Pair, Role, Transfer, Tuning,
};

/// Counts bytes without touching them.
pub struct Null;

static INFO: Info = Info {
    name: "null",
    summary: "move nothing; shows the cost of a measurement itself",
    calls: &[],
    // No byte reaches the sink, so no guarantee is given.
    pairs: &[
        Pair::new(Kind::Memory, Kind::Memory, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::File, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Null, Guarantees::SHARED),
    ],
    knobs: &[],
    role: Role::Harness,
    nature: Nature::PLAIN,
};

struct NullMover {
    left: u64,
}

impl Mechanism for Null {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, _: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        Ok(Box::new(NullMover { left: t.limit().unwrap_or(0) }))
    }
}

impl Mover for NullMover {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let count = budget.min(self.left);
        self.left -= count;
        Ok(count)
    }

    fn knows_the_end(&self) -> bool {
        true
    }
}
