//! The end that sends.

use super::choice::Choice;
use super::choose::Options;
use super::control::{Control, Note, Say};
use super::facts::Facts;
use super::handshake::{Chosen, Meeting, Skipped, error_of};
use super::mechanism::Outgoing;
use super::memory::{Lent, Loan};
use crate::error::{Error, Result};
use crate::layout::Role;
use crate::link::Link;
use crate::shared::stop::Stop;
use std::time::Instant;
use thalweg_core::{Info, Tuning, Unfit};

/// Sends buffers to one [`Receiver`](super::Receiver). A call returns when the whole buffer has
/// arrived: nothing that is done to it afterwards shows at the other side.
pub struct Sender {
    meeting: Meeting,
    options: Options,
    chosen: Chosen,
    outgoing: Box<dyn Outgoing>,
    /// A transfer went wrong: the other side may be in the middle of it.
    broken: bool,
}

impl Sender {
    /// Meets the receiver at the other end of the link and agrees on a mechanism with it.
    ///
    /// [`Error::NotPermitted`] with every reason if there is none; [`Error::PeerDied`].
    pub fn over(link: Link, options: Options) -> Result<Self> {
        Self::over_until(link, options, None)
    }

    /// As [`Sender::over`], for no longer than `deadline`; `None` is for ever.
    pub fn over_until(link: Link, options: Options, deadline: Option<Instant>) -> Result<Self> {
        let meet = || {
            let mut meeting = Meeting::begin(link, &options, deadline, Role::Sender)?;
            let agreed = meeting.offer(&options)?;
            meeting.control.until(None);
            Ok((meeting, agreed))
        };
        let (meeting, (chosen, outgoing)) = meet().map_err(|stop| error_of(stop, 0))?;
        Ok(Self { meeting, options, chosen, outgoing, broken: false })
    }

    /// The mechanism in use.
    pub fn mechanism(&self) -> &'static Info {
        self.chosen.info
    }

    /// Its knobs, as far as they were set.
    pub fn tuning(&self) -> &Tuning {
        &self.chosen.tuning
    }

    /// What was known when the mechanism was chosen.
    pub fn facts(&self) -> &Facts {
        &self.meeting.facts
    }

    /// What the choice of the mechanism in use rests on.
    pub fn choice(&self) -> Choice {
        Choice::of(self.mechanism().name, self.facts(), &self.options)
    }

    /// What is not used, and why: mechanisms that were passed over, or that failed under way.
    pub fn skipped(&self) -> &[Skipped] {
        &self.meeting.skipped
    }

    /// Sends a buffer and waits until all of it is the receiver's. A mechanism that refuses is
    /// replaced by the next, from the buffer's first byte on, and the step is recorded in
    /// [`skipped`](Self::skipped).
    ///
    /// After another error than [`Error::Forked`] nothing more can be sent, and the receiver, which
    /// may be in the middle of the buffer, is told: it does not take what is done to the buffer from
    /// then on for what was sent. [`Error::PeerDied`]: what arrived is not known. [`Error::Forked`]
    /// in a child, whose parent goes on.
    pub fn send_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.send_from_until(bytes, None)
    }

    /// As [`Sender::send_from`], for no longer than `deadline`; `None` is for ever. After
    /// [`Error::Timeout`] what arrived is not known and nothing more can be sent. The deadline is the
    /// caller's wish and says nothing about the receiver, which may be slow, or stopped.
    pub fn send_from_until(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<()> {
        self.transfer(
            |outgoing, control| outgoing.send(bytes, control),
            (bytes.is_empty(), deadline),
        )
    }

    /// Memory to write the data into before [`send_loan`](Self::send_loan). Mechanisms that can
    /// hand it over save a copy; for others it is ordinary memory.
    pub fn alloc(&mut self, len: usize) -> Result<Loan> {
        let lent = match self.outgoing.lend(len).filter(|_| len > 0) {
            Some(lent) => lent,
            None => Lent::ordinary(len),
        };
        lent.map(Loan).map_err(|why| Error::not_permitted(why.reason))
    }

    /// Sends a loan. The memory comes back to be used again, unless the receiver has it now.
    pub fn send_loan(&mut self, loan: Loan) -> Result<Option<Loan>> {
        self.send_loan_until(loan, None)
    }

    /// As [`Sender::send_loan`], within the time of [`Sender::send_from_until`].
    pub fn send_loan_until(
        &mut self,
        loan: Loan,
        deadline: Option<Instant>,
    ) -> Result<Option<Loan>> {
        let is_empty = loan.is_empty();
        let mut lent = Some(loan.0);
        self.transfer(
            |outgoing, control| {
                let Some(own) = lent.take() else {
                    return Err(Stop::Refused(Unfit::because("the loan could not be had back")));
                };
                let outcome;
                (lent, outcome) = outgoing.send_lent(own, control);
                outcome
            },
            (is_empty, deadline),
        )?;
        Ok(lent.map(Loan))
    }

    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.meeting.control
    }

    /// Why the two do not trust each other, if they do not.
    pub(super) fn distrust(&self) -> Option<&Unfit> {
        self.meeting.ends.trusted.as_ref().err()
    }

    /// Records what is not used.
    pub(super) fn skip(&mut self, what: &str, reason: String) {
        self.meeting.skip(what, reason);
    }

    /// Nothing more is sent, no goodbye either.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.meeting.control.close();
    }

    /// Says goodbye: the receiver knows that nothing is missing. Dropping a sender does the same.
    pub fn finish(self) {
        drop(self);
    }

    fn transfer(
        &mut self,
        mut attempt: impl FnMut(&mut dyn Outgoing, &mut Control) -> std::result::Result<(), Stop>,
        (empty, deadline): (bool, Option<Instant>),
    ) -> Result<()> {
        self.meeting.control.check_here()?;
        if self.broken {
            return Err(Error::Closed { delivered: 0 });
        }
        self.meeting.control.until(deadline);
        loop {
            let control = &mut self.meeting.control;
            let outcome = if empty {
                let begin = control.tell(Note::new(Say::Begin, &[0]));
                begin.and_then(|()| control.expect(Say::Done).map(drop))
            } else {
                attempt(&mut *self.outgoing, control)
            };
            let stop = match outcome {
                Ok(()) => return Ok(()),
                Err(Stop::Refused(why)) => match self.step_down(why) {
                    Ok(()) => continue,
                    Err(stop) => stop,
                },
                Err(stop) => stop,
            };
            self.give_up();
            return Err(error_of(stop, 0));
        }
    }

    /// Agrees on another mechanism.
    fn step_down(&mut self, why: Unfit) -> std::result::Result<(), Stop> {
        // What the old mechanism held is closed first: the receiver may be waiting on it.
        self.outgoing = Box::new(NoMechanism);
        let mechanism = self.chosen.info.name.to_owned();
        self.meeting.skipped.push(Skipped { mechanism, reason: why.reason });
        self.meeting.control.tell(Note::new(Say::StepDown, &[]))?;
        (self.chosen, self.outgoing) = self.meeting.offer(&self.options)?;
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.broken && self.meeting.control.check_here().is_ok() {
            self.meeting.control.until(None);
            // A receiver that is gone needs no goodbye.
            let _ = self.meeting.control.tell(Note::new(Say::Bye, &[]));
        }
    }
}

/// Between two mechanisms.
struct NoMechanism;

impl Outgoing for NoMechanism {
    #[allow(private_interfaces)]
    fn send(&mut self, _: &[u8], _: &mut Control) -> std::result::Result<(), Stop> {
        Err(Stop::Refused(Unfit::because("no mechanism is in use")))
    }
}
