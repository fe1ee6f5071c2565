//! An arm (a compared variant) that sends buffers from process A to process B.

use std::{cell::RefCell, mem, rc::Rc};
use thalweg_channel::bulk::{Loan, Mechanism, Sender};
use thalweg_core::{Guarantees, Unfit, alias::Alias};
use thalweg_sys::tally;

use super::{
    BulkSource, BulkTerms, PairJob,
    landing::{Residency, at_once},
    pair::{ProcessPair, pair_of},
};
use crate::{
    arms::content::ByteContent,
    sample::{Sample, SampleMeter},
    schedule::{Arm, SampleFailure},
};

/// A sender with its receiver in the helper process.
pub struct BulkArm {
    pair: Rc<RefCell<ProcessPair>>,
    terms: BulkTerms,
    bytes: usize,
    /// The sender. After a failure, the error instead, because the receiver may be in the middle of a transfer.
    sender: Result<Sender, Unfit>,
    /// The helper's number of this sender.
    seat: u32,
    gives: Guarantees,
    /// Memory that the channel lent, filled with data.
    loans: Vec<Loan>,
    /// `true` if the channel gives a loan back after sending it, so that the next operation can reuse it.
    returns: bool,
    /// The result of [`Self::look`], which checks whether later writes of A change the bytes in B; `None` before the
    /// check.
    seen: Option<Alias>,
}

impl BulkArm {
    /// Probes the arm and opens it between both processes, without allocating large memory.
    pub fn join(
        job: &PairJob<'_>,
        terms: BulkTerms,
        arm: Option<&dyn Mechanism>,
    ) -> Result<Self, Unfit> {
        arm.map_or(Ok(()), Mechanism::probe)?;
        let bytes = job.bytes;
        let options = terms.options(arm, bytes);
        let pair = pair_of(job)?;
        let (sender, seat) = pair.borrow_mut().join(terms.residency, terms.reads, options)?;
        Ok(Self {
            pair,
            bytes,
            gives: sender.mechanism().gives_in_memory(),
            sender: Ok(sender),
            seat,
            loans: Vec::new(),
            returns: false,
            seen: None,
            terms,
        })
    }

    /// Performs `count` operations and times all of them together.
    fn batch(&mut self, count: u32) -> Result<Sample, Unfit> {
        self.lend(count)?;
        let mut pair = self.pair.borrow_mut();
        pair.far.begin(&format!("take {} {count}", self.seat))?;
        let sender = self.sender.as_mut().map_err(|broken| broken.clone())?;
        let before = tally::calls();
        let meter = SampleMeter::start();
        let sent = send(sender, pair.source(), &mut self.loans, count, self.terms.source);
        let waits = self.terms.reads && sent.is_ok();
        let read = if waits { pair.far.hear_only("read") } else { Ok(()) };
        let mut sample = meter.stop(self.bytes as u64 * u64::from(count));
        sample.calls = Some(tally::calls() - before);
        drop(pair);
        self.settle(sent)?;
        read?;
        let (used, calls) = self.pair.borrow_mut().far.spent()?;
        sample.add_far(&used, calls);
        Ok(sample)
    }

    /// Creates the loans that `count` operations need, and fills each with data.
    fn lend(&mut self, count: u32) -> Result<(), Unfit> {
        let sender = self.sender.as_mut().map_err(|broken| broken.clone())?;
        if self.terms.source == BulkSource::Private {
            return Ok(());
        }
        let count = if self.returns { 1 } else { count as usize };
        while self.loans.len() < count {
            let loan = sender.alloc(self.bytes);
            let mut loan = loan.map_err(|error| Unfit::because(error.to_string()))?;
            ByteContent::Pattern.fill(0, &mut loan);
            self.loans.push(loan);
        }
        Ok(())
    }

    /// If sending failed, closes the link so that the receiver stops too, and adds the receiver's reason to the error.
    fn settle(&mut self, sent: Result<(), Unfit>) -> Result<(), Unfit> {
        let Err(failed) = sent else { return Ok(()) };
        drop(mem::replace(&mut self.sender, Err(failed.clone())));
        let Err(words) = self.pair.borrow_mut().far.spent() else { return Err(failed) };
        let broken = Unfit { reason: format!("{failed}; {words}"), ..failed };
        self.sender = Err(broken.clone());
        Err(broken)
    }

    /// Sends new content and lets B verify it. Then overwrites the content in A and lets B verify its own bytes again.
    fn look(&mut self) -> Result<Alias, Unfit> {
        self.lend(1)?;
        let at = self.pair.borrow_mut().next_content();
        self.write(at);
        if self.terms.spoils {
            self.spoil();
        }
        let mut pair = self.pair.borrow_mut();
        pair.far.begin(&format!("look {} {at}", self.seat))?;
        let sender = self.sender.as_mut().map_err(|broken| broken.clone())?;
        let sent = send(sender, pair.source(), &mut self.loans, 1, self.terms.source);
        drop(pair);
        self.settle(sent)?;
        if let Some(place) = self.pair.borrow_mut().verdict()? {
            let bytes = self.bytes;
            return Err(Unfit::because(format!("a wrong byte arrived at {place} of {bytes}")));
        }
        let other = self.pair.borrow_mut().next_content();
        self.write(other);
        let changed = self.pair.borrow_mut().look_again(at)?;
        Ok(if changed.is_some() { Alias::Shared } else { Alias::Copied })
    }

    /// Writes content to the memory that A sends. Does nothing if the channel kept the loan after sending it.
    fn write(&mut self, at: u64) {
        match (self.terms.source, self.loans.last_mut()) {
            (BulkSource::Private, _) => self.pair.borrow_mut().fill_source(at),
            (BulkSource::Born, Some(loan)) => ByteContent::Pattern.fill(at, loan),
            (BulkSource::Born, None) => {}
        }
    }

    fn spoil(&mut self) {
        let middle = self.bytes / 2;
        match self.loans.last_mut() {
            Some(loan) => loan[middle] ^= 1,
            None => self.pair.borrow_mut().source_mut()[middle] ^= 1,
        }
    }
}

fn send(
    sender: &mut Sender,
    source: &[u8],
    loans: &mut Vec<Loan>,
    count: u32,
    from: BulkSource,
) -> Result<(), Unfit> {
    let unfit = |error: thalweg_channel::Error| Unfit::because(error.to_string());
    for _ in 0..count {
        match from {
            BulkSource::Private => sender.send_from(source).map_err(unfit)?,
            BulkSource::Born => {
                let loan =
                    loans.pop().ok_or_else(|| Unfit::because("every loaned buffer is in use"))?;
                loans.extend(sender.send_loan(loan).map_err(unfit)?);
            }
        }
    }
    Ok(())
}

impl Arm for BulkArm {
    fn promises(&self) -> Option<Guarantees> {
        Some(self.gives)
    }

    fn is_fresh(&self) -> bool {
        self.terms.faults
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        self.pair.borrow_mut().make_room()?;
        self.batch(1)?;
        self.returns = !self.loans.is_empty();
        Ok(())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        // The new memory of a whole batch is allocated before its first operation. This limits the size of a batch.
        let is_new = self.terms.residency != Residency::Resident
            || self.terms.source == BulkSource::Born && !self.returns;
        let most = if is_new { at_once(self.bytes) } else { u32::MAX };
        Sample::of_batches(repeats, most, |count| self.batch(count)).map_err(SampleFailure::Unfit)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        let seen = self.look()?;
        self.seen = Some(seen);
        if seen == Alias::Shared && self.gives.stable && self.gives.private {
            return Err(Unfit::because("the copy changed when the sender reused its buffer"));
        }
        Ok(())
    }

    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        Some(self.seen.map_or_else(|| self.look(), Ok))
    }
}
