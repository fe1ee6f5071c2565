//! Copies within the sending process (called A), for comparison with transfers to process B: one memcpy, the lower
//! limit for any copy on one core, and a copy with vmsplice.

use std::{cell::RefCell, hint::black_box, rc::Rc};
use thalweg_core::{Guarantees, Unfit, alias::Alias};

use super::with::{BulkParameters, LocalCopier};
use crate::arms::Arm;
use thalweg_measure::arms::bulk::{
    DestinationMemory, PairJob, ProcessPair, Residency, at_once, pair_of, read_through,
};
use thalweg_measure::{
    arms::content::{ByteContent, first_difference},
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
};

/// A copy from A's memory to other memory of A.
pub(super) struct LocalCopy {
    pair: Rc<RefCell<ProcessPair>>,
    landing: DestinationMemory,
    copier: LocalCopier,
    bytes: usize,
    most: u32,
    with: BulkParameters,
}

impl LocalCopy {
    /// Creates the arm (a compared variant) without allocating large memory.
    pub fn new(
        job: &PairJob<'_>,
        with: &BulkParameters,
        copier: LocalCopier,
    ) -> Result<Self, Unfit> {
        let bytes = job.bytes;
        let most = if with.residency == Residency::Resident { u32::MAX } else { at_once(bytes) };
        let landing = DestinationMemory::new(with.residency, bytes);
        Ok(Self { pair: pair_of(job)?, landing, copier, bytes, most, with: with.clone() })
    }

    /// Performs `count` copies in one sample. Their results remain in memory for verification.
    fn batch(&mut self, count: u32) -> Result<Sample, Unfit> {
        self.landing.prepare(count).map_err(Unfit::because)?;
        let pair = self.pair.borrow();
        let meter = SampleMeter::start();
        for number in 0..count {
            let copied = match self.landing.destination(number) {
                Some(place) => self.copier.copy(place, pair.source()),
                None => self.landing.make().and_then(|mut made| {
                    self.copier.copy(&mut made, pair.source())?;
                    self.landing.keep(made);
                    Ok(())
                }),
            };
            copied.map_err(Unfit::because)?;
            if self.with.read {
                black_box(read_through(self.landing.landed(number)));
            }
        }
        Ok(meter.stop(self.bytes as u64 * u64::from(count)))
    }

    fn differs(&self, at: u64) -> Option<usize> {
        first_difference(ByteContent::Pattern, at, self.landing.landed(0))
    }
}

impl Arm for LocalCopy {
    fn promises(&self) -> Option<Guarantees> {
        Some(Guarantees::COPIED)
    }

    fn is_fresh(&self) -> bool {
        self.with.faults()
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.pair.borrow_mut().make_room()?;
        self.sample(1)?;
        Ok(())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        let done = Sample::of_batches(repeats, self.most, |count| {
            let sample = self.batch(count);
            self.landing.clear();
            sample
        });
        done.map_err(SampleFailure::Unfit)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        let [at, other] = [0; 2].map(|_| self.pair.borrow_mut().next_content());
        self.pair.borrow_mut().fill_source(at);
        if self.with.spoil {
            self.pair.borrow_mut().source_mut()[self.bytes / 2] ^= 1;
        }
        self.batch(1)?;
        let first = self.differs(at);
        self.pair.borrow_mut().fill_source(other);
        let again = self.differs(at);
        self.landing.clear();
        match (first, again) {
            (None, None) => Ok(()),
            (Some(place), _) => {
                let bytes = self.bytes;
                Err(Unfit::because(format!("a wrong byte arrived at {place} of {bytes}")))
            }
            (None, Some(_)) => {
                Err(Unfit::because("the copy changed when its source was written to afterwards"))
            }
        }
    }

    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        // `check` has proved this: it overwrites the source after the copy, and compares the copy again.
        Some(Ok(Alias::Copied))
    }
}
