//! The sending end of a bulk transfer.

use super::choice::Choice;
use super::choose::Options;
use super::control::{BulkControl, Note, Say};
use super::facts::Facts;
use super::handshake::{ChosenMechanism, MetPeer, Skipped, error_of};
use super::mechanism::Outgoing;
use super::memory::{LentRegion, Loan};
use crate::error::{Error, Result};
use crate::layout::Role;
use crate::link::Link;
use crate::shared::stop::WaitStop;
use std::time::Instant;
use thalweg_core::{Info, Tuning, Unfit};

/// Sends buffers to one [`Receiver`](super::Receiver). Each call returns after the whole buffer has arrived. The
/// receiver does not see later changes to the buffer.
pub struct Sender {
    meeting: MetPeer,
    options: Options,
    chosen: ChosenMechanism,
    outgoing: Box<dyn Outgoing>,
    /// `true` after a failed transfer. The receiver may then be in the middle of a buffer.
    broken: bool,
}

impl Sender {
    /// Connects to the receiver at the other end of the link and agrees on a mechanism.
    ///
    /// Returns [`Error::NotPermitted`] with all reasons if no mechanism works, and [`Error::PeerDied`]
    /// if the peer is gone.
    pub fn over(link: Link, options: Options) -> Result<Self> {
        Self::over_until(link, options, None)
    }

    /// Like [`Sender::over`], but waits until `deadline` at most; `None` waits without limit.
    pub fn over_until(link: Link, options: Options, deadline: Option<Instant>) -> Result<Self> {
        let meet = || {
            let mut meeting = MetPeer::begin(link, &options, deadline, Role::Sender)?;
            let agreed = meeting.offer(&options)?;
            meeting.control.until(None);
            Ok((meeting, agreed))
        };
        let (meeting, (chosen, outgoing)) = meet().map_err(|stop| error_of(stop, 0))?;
        Ok(Self { meeting, options, chosen, outgoing, broken: false })
    }

    /// Returns the mechanism in use.
    pub fn mechanism(&self) -> &'static Info {
        self.chosen.info
    }

    /// Returns the knobs that were set for the mechanism. Every other knob has its default.
    pub fn tuning(&self) -> &Tuning {
        &self.chosen.tuning
    }

    /// Returns the facts known when the mechanism was chosen.
    pub fn facts(&self) -> &Facts {
        &self.meeting.facts
    }

    /// Returns the reason for the choice of the mechanism in use.
    pub fn choice(&self) -> Choice {
        Choice::of(self.mechanism().name, self.facts(), &self.options)
    }

    /// Returns the mechanisms that were rejected or that failed during the transfer, with reasons.
    pub fn skipped(&self) -> &[Skipped] {
        &self.meeting.skipped
    }

    /// Sends a buffer and waits until all of it has arrived. If the mechanism refuses, the next one replaces it and
    /// sends the buffer again from its first byte; see [`skipped`](Self::skipped).
    ///
    /// After any error except [`Error::Forked`], nothing more can be sent. The receiver is notified at once, so that it
    /// does not take later changes of the buffer for sent data. After [`Error::PeerDied`], the number of bytes that
    /// arrived is unknown. [`Error::Forked`] is returned in a forked child; the parent can continue.
    pub fn send_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.send_from_until(bytes, None)
    }

    /// Like [`Sender::send_from`], but waits until `deadline` at most; `None` waits without limit. After
    /// [`Error::Timeout`], the number of bytes that arrived is unknown, and nothing more can be sent. A timeout does
    /// not mean that the receiver is faulty; it may be slow or stopped.
    pub fn send_from_until(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<()> {
        self.transfer(
            |outgoing, control| outgoing.send(bytes, control),
            (bytes.is_empty(), deadline),
        )
    }

    /// Allocates memory for data to be sent with [`send_loan`](Self::send_loan). A mechanism that can pass this memory
    /// to the receiver avoids a copy. For all other mechanisms it is ordinary memory.
    pub fn alloc(&mut self, len: usize) -> Result<Loan> {
        let lent = match self.outgoing.lend(len).filter(|_| len > 0) {
            Some(lent) => lent,
            None => LentRegion::ordinary(len),
        };
        lent.map(Loan).map_err(|why| Error::not_permitted(why.reason))
    }

    /// Sends a loan. Returns the memory for reuse, unless the receiver keeps it.
    pub fn send_loan(&mut self, loan: Loan) -> Result<Option<Loan>> {
        self.send_loan_until(loan, None)
    }

    /// Like [`Sender::send_loan`], but with the deadline rules of [`Sender::send_from_until`].
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
                    return Err(WaitStop::Refused(Unfit::because(
                        "the failed method lost the buffer, so its data cannot be sent again",
                    )));
                };
                let outcome;
                (lent, outcome) = outgoing.send_lent(own, control);
                outcome
            },
            (is_empty, deadline),
        )?;
        Ok(lent.map(Loan))
    }

    pub(super) fn control(&mut self) -> &mut BulkControl {
        &mut self.meeting.control
    }

    /// Returns why the two sides may not access each other's memory; `None` if they may.
    pub(super) fn distrust(&self) -> Option<&Unfit> {
        self.meeting.ends.trusted.as_ref().err()
    }

    /// Records a rejected mechanism; see [`Sender::skipped`].
    pub(super) fn skip(&mut self, what: &str, reason: String) {
        self.meeting.skip(what, reason);
    }

    /// Ends the transfer without a goodbye, so that the receiver does not take the data for complete.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.meeting.control.close();
    }

    /// Ends the transfer, as dropping the sender does. The receiver learns that it has received everything.
    pub fn finish(self) {
        drop(self);
    }

    fn transfer(
        &mut self,
        mut attempt: impl FnMut(
            &mut dyn Outgoing,
            &mut BulkControl,
        ) -> std::result::Result<(), WaitStop>,
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
                Err(WaitStop::Refused(why)) => match self.step_down(why) {
                    Ok(()) => continue,
                    Err(stop) => stop,
                },
                Err(stop) => stop,
            };
            self.give_up();
            return Err(error_of(stop, 0));
        }
    }

    /// Replaces the mechanism in use by another one, on which the receiver agrees.
    fn step_down(&mut self, why: Unfit) -> std::result::Result<(), WaitStop> {
        // Close the old mechanism first, because the receiver may be blocked on its pipe or socket.
        self.outgoing = Box::new(NoOutgoing);
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
            // An error is ignored, because the receiver may be gone.
            let _ = self.meeting.control.tell(Note::new(Say::Bye, &[]));
        }
    }
}

/// Placeholder while no mechanism is in use.
struct NoOutgoing;

impl Outgoing for NoOutgoing {
    #[allow(private_interfaces)]
    fn send(&mut self, _: &[u8], _: &mut BulkControl) -> std::result::Result<(), WaitStop> {
        Err(WaitStop::Refused(Unfit::because("no method is in use at the moment")))
    }
}
