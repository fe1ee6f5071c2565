//! The receiving end of a bulk transfer.

use super::choose::Options;
use super::control::{BulkControl, Note, Say};
use super::handshake::{ChosenMechanism, MetPeer, Skipped, error_of};
use super::mechanism::{Broken, Incoming};
use super::memory::{Buffer, MappedBytes};
use crate::error::{Error, Result};
use crate::layout::Role;
use crate::link::Link;
use crate::shared::liveness::Gone;
use crate::shared::stop::WaitStop;
use std::time::Instant;
use thalweg_core::{Info, Tuning, Unfit};
use thalweg_sys::{host, region::Pages};

/// Receives the buffers of one [`Sender`](super::Sender), in their order.
pub struct Receiver {
    meeting: MetPeer,
    chosen: ChosenMechanism,
    incoming: Box<dyn Incoming>,
    /// The announcement of a buffer that was not received yet.
    pending: Option<Note>,
    end: Option<ReceiverState>,
}

/// Reason why nothing more will arrive.
#[derive(Clone, Copy)]
enum ReceiverState {
    Goodbye,
    Broken,
}

impl Receiver {
    /// Connects to the sender at the other end of the link and agrees on a mechanism.
    ///
    /// Returns [`Error::NotPermitted`] with all reasons if no mechanism works, and [`Error::PeerDied`]
    /// if the peer is gone.
    pub fn over(link: Link, options: &Options) -> Result<Self> {
        Self::over_until(link, options, None)
    }

    /// Like [`Receiver::over`], but waits until `deadline` at most; `None` waits without limit.
    pub fn over_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        Self::agreed(link, options, deadline).map_err(|stop| error_of(stop, 0))
    }

    pub(super) fn agreed(
        link: Link,
        options: &Options,
        deadline: Option<Instant>,
    ) -> std::result::Result<Self, WaitStop> {
        let mut meeting = MetPeer::begin(link, options, deadline, Role::Receiver)?;
        let (chosen, incoming) = meeting.accept()?;
        meeting.control.until(None);
        Ok(Self { meeting, chosen, incoming, pending: None, end: None })
    }

    /// Returns the mechanism in use.
    pub fn mechanism(&self) -> &'static Info {
        self.chosen.info
    }

    /// Returns the knobs that were set for the mechanism. Every other knob has its default.
    pub fn tuning(&self) -> &Tuning {
        &self.chosen.tuning
    }

    /// Returns the mechanisms that were rejected, with reasons, as far as this side knows them.
    pub fn skipped(&self) -> &[Skipped] {
        &self.meeting.skipped
    }

    /// Waits for the next buffer and returns its length; `None` if the sender has ended the transfer.
    pub fn next_len(&mut self) -> Result<Option<u64>> {
        self.next_len_until(None)
    }

    /// Like [`Receiver::next_len`], but waits until `deadline` at most; `None` waits without limit. After
    /// [`Error::Timeout`], the call can be repeated without loss.
    pub fn next_len_until(&mut self, deadline: Option<Instant>) -> Result<Option<u64>> {
        self.meeting.control.check_here()?;
        self.meeting.control.until(deadline);
        match self.end {
            Some(ReceiverState::Goodbye) => return Ok(None),
            Some(ReceiverState::Broken) => return Err(Error::Closed { delivered: 0 }),
            None => {}
        }
        Ok(self.begin()?.map(|note| note.words[0]))
    }

    /// Receives the next buffer into the start of `into`, and returns its length.
    ///
    /// Returns [`Error::Closed`] after the end of the transfer and [`Error::Forked`] in a forked child.
    /// [`Error::TooLarge`] consumes nothing: call again with more room. If the peer dies in the middle of a buffer,
    /// [`Error::PeerDied`] contains the number of valid bytes at the start of `into`. After any other error, the
    /// contents of `into` are undefined.
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<usize> {
        self.recv_into_until(into, None)
    }

    /// Like [`Receiver::recv_into`], but waits until `deadline` at most; `None` waits without limit. If
    /// [`Error::Timeout`] occurs before a buffer has begun, no data is lost. If it occurs in the middle of a buffer,
    /// the transfer ends: the sender is notified, and the next call returns [`Error::Closed`]. If the sender itself
    /// writes to `into` (mechanism `coop`), the call returns only after the sender has finished writing or died. A
    /// timeout does not mean that the sender is faulty; it may be slow or stopped.
    pub fn recv_into_until(&mut self, into: &mut [u8], deadline: Option<Instant>) -> Result<usize> {
        loop {
            let len = self.next_len_until(deadline)?.ok_or(Error::Closed { delivered: 0 })?;
            let most = into.len() as u64;
            if len > most {
                return Err(Error::TooLarge { len, most, instead: Some("recv_new") });
            }
            let Some(begin) = self.pending.take() else { continue };
            let into = &mut into[..len as usize];
            let outcome = match into {
                [] => Ok(()),
                _ => self.incoming.receive(begin, into, &mut self.meeting.control),
            };
            if self.settle(outcome)? {
                return Ok(len as usize);
            }
        }
    }

    /// Receives the next buffer into newly allocated memory. The memory is on huge pages if the kernel provides them.
    /// Its pages are made resident before the copy, unless the mechanism provides the memory itself.
    ///
    /// Errors: see [`recv_into`](Self::recv_into). Also returns [`Error::TooLarge`] if the buffer
    /// exceeds the available memory of this machine.
    pub fn recv_new(&mut self) -> Result<Buffer> {
        self.recv_new_until(None)
    }

    /// Like [`Receiver::recv_new`], but with the deadline rules of [`Receiver::recv_into_until`].
    pub fn recv_new_until(&mut self, deadline: Option<Instant>) -> Result<Buffer> {
        loop {
            let len = self.next_len_until(deadline)?.ok_or(Error::Closed { delivered: 0 })?;
            if let Some(begin) = self.pending.filter(|_| len > 0) {
                let control = &mut self.meeting.control;
                if let Some(outcome) = self.incoming.receive_as_memory(begin, control) {
                    self.pending = None;
                    let (memory, outcome) = match outcome {
                        Ok(memory) => (Some(memory), Ok(())),
                        Err(broken) => (None, Err(broken)),
                    };
                    match (self.settle(outcome)?, memory) {
                        (true, Some(memory)) => return Ok(Buffer(memory)),
                        _ => continue,
                    }
                }
            }
            // A peer can claim any length. If this process used more memory than is available, the kernel would kill
            // it.
            let most = host::memory_available().unwrap_or(u64::MAX);
            let whole = usize::try_from(len).ok().filter(|_| len <= most);
            let whole = whole.ok_or(Error::TooLarge { len, most, instead: None })?;
            let memory = MappedBytes::fresh(whole, Pages::Transparent);
            let mut memory = memory.map_err(Error::system("mmap"))?;
            let got = self.recv_into_until(&mut memory, deadline)?;
            if got == whole {
                return Ok(Buffer(memory));
            }
            // After a fallback, the sender must send the announced buffer again and no other.
            let what = "the sender announced one buffer and then sent another".to_owned();
            return Err(self.broken(WaitStop::corrupt(what), 0));
        }
    }

    /// Waits for the announcement of the next buffer.
    fn begin(&mut self) -> Result<Option<Note>> {
        while self.pending.is_none() {
            let note = match self.meeting.control.hear() {
                // No buffer has begun, so nothing is lost.
                Err(WaitStop::Late) => return Err(Error::Timeout),
                note => note.map_err(|stop| self.broken(stop, 0))?,
            };
            match note.say {
                Say::Begin => self.pending = Some(note),
                Say::StepDown => self.step_down().map_err(|stop| self.broken(stop, 0))?,
                Say::Bye => {
                    self.end = Some(ReceiverState::Goodbye);
                    return Ok(None);
                }
                other => {
                    let what = format!("unexpected message between buffers: {other:?}");
                    return Err(self.broken(WaitStop::corrupt(what), 0));
                }
            }
        }
        Ok(self.pending)
    }

    /// Confirms or refuses a buffer. Returns `true` if the buffer has arrived. Returns `false` if the sender will send
    /// it again, by another mechanism.
    fn settle(&mut self, outcome: std::result::Result<(), Broken>) -> Result<bool> {
        let control = &mut self.meeting.control;
        let Err(Broken { delivered, stop }) = outcome else {
            // Errors are ignored. Even if the sender has died, this buffer is complete, and the next call detects the
            // death.
            let _ = control.tell(Note::new(Say::Done, &[]));
            return Ok(true);
        };
        let next = match stop {
            WaitStop::Refused(why) => {
                // Close the mechanism first, because the sender may be blocked on its pipe or socket.
                self.incoming = Box::new(NoIncoming);
                let errno = why.errno.map_or(0, |errno| errno.raw_os_error() as u64);
                let mechanism = self.chosen.info.name.to_owned();
                self.meeting.skipped.push(Skipped { mechanism, reason: why.reason });
                self.refuse(errno)
            }
            // The pipe or socket of the mechanism has ended. If the sender lives, it sends a note next.
            WaitStop::Gone(_) => self.hear_step_down(),
            other => Err(other),
        };
        match next {
            Ok(()) => Ok(false),
            Err(stop) => Err(self.broken(stop, delivered)),
        }
    }

    fn refuse(&mut self, errno: u64) -> std::result::Result<(), WaitStop> {
        self.meeting.control.tell(Note::new(Say::Refused, &[errno]))?;
        self.hear_step_down()
    }

    fn hear_step_down(&mut self) -> std::result::Result<(), WaitStop> {
        match self.meeting.control.hear()?.say {
            Say::StepDown => self.step_down(),
            // The sender ended the transfer in the middle of a buffer.
            Say::Bye => Err(WaitStop::Gone(Gone::Died)),
            other => Err(WaitStop::corrupt(format!(
                "unexpected message during the transfer of a buffer: {other:?}"
            ))),
        }
    }

    /// Agrees on another mechanism with the sender.
    fn step_down(&mut self) -> std::result::Result<(), WaitStop> {
        self.incoming = Box::new(NoIncoming);
        let (mechanism, known) = (self.chosen.info.name, &self.meeting.skipped);
        if !known.iter().any(|skipped| skipped.mechanism == mechanism) {
            let reason = "the sender stopped using this method".to_owned();
            self.meeting.skipped.push(Skipped { mechanism: mechanism.to_owned(), reason });
        }
        (self.chosen, self.incoming) = self.meeting.accept()?;
        Ok(())
    }

    pub(super) fn broken(&mut self, stop: WaitStop, delivered: u64) -> Error {
        self.give_up();
        error_of(stop, delivered)
    }

    /// Ends the transfer. Nothing more can be received.
    pub(super) fn give_up(&mut self) {
        self.end = Some(ReceiverState::Broken);
        self.meeting.control.close();
    }

    pub(super) fn control(&mut self) -> &mut BulkControl {
        &mut self.meeting.control
    }

    /// Returns `true` if both sides may access each other's memory.
    pub(super) fn trusts(&self) -> bool {
        self.meeting.ends.trusted.is_ok()
    }

    /// Records a rejected mechanism; see [`Receiver::skipped`].
    pub(super) fn skip(&mut self, what: &str, reason: String) {
        self.meeting.skip(what, reason);
    }
}

/// Placeholder while no mechanism is in use.
struct NoIncoming;

impl Incoming for NoIncoming {
    #[allow(private_interfaces)]
    fn receive(
        &mut self,
        _: Note,
        _: &mut [u8],
        _: &mut BulkControl,
    ) -> std::result::Result<(), Broken> {
        Err(WaitStop::Refused(Unfit::because("no method is in use at the moment")).into())
    }
}
