//! The end that receives.

use super::choose::Options;
use super::control::{Control, Note, Say};
use super::handshake::{Chosen, Meeting, Skipped, error_of};
use super::mechanism::{Broken, Incoming};
use super::memory::{Buffer, Memory};
use crate::error::{Error, Result};
use crate::layout::Role;
use crate::link::Link;
use crate::shared::liveness::Gone;
use crate::shared::stop::Stop;
use std::time::Instant;
use thalweg_core::{Info, Tuning, Unfit};
use thalweg_sys::{host, region::Pages};

/// Receives the buffers of one [`Sender`](super::Sender), one after the other.
pub struct Receiver {
    meeting: Meeting,
    chosen: Chosen,
    incoming: Box<dyn Incoming>,
    /// A buffer that was announced and not taken yet.
    pending: Option<Note>,
    end: Option<End>,
}

/// Nothing more comes.
#[derive(Clone, Copy)]
enum End {
    Goodbye,
    Broken,
}

impl Receiver {
    /// Meets the sender at the other end of the link and agrees on a mechanism with it.
    ///
    /// [`Error::NotPermitted`] with every reason if there is none; [`Error::PeerDied`].
    pub fn over(link: Link, options: &Options) -> Result<Self> {
        Self::over_until(link, options, None)
    }

    /// As [`Receiver::over`], for no longer than `deadline`; `None` is for ever.
    pub fn over_until(link: Link, options: &Options, deadline: Option<Instant>) -> Result<Self> {
        Self::agreed(link, options, deadline).map_err(|stop| error_of(stop, 0))
    }

    pub(super) fn agreed(
        link: Link,
        options: &Options,
        deadline: Option<Instant>,
    ) -> std::result::Result<Self, Stop> {
        let mut meeting = Meeting::begin(link, options, deadline, Role::Receiver)?;
        let (chosen, incoming) = meeting.accept()?;
        meeting.control.until(None);
        Ok(Self { meeting, chosen, incoming, pending: None, end: None })
    }

    /// The mechanism in use.
    pub fn mechanism(&self) -> &'static Info {
        self.chosen.info
    }

    /// Its knobs, as far as they were set.
    pub fn tuning(&self) -> &Tuning {
        &self.chosen.tuning
    }

    /// What is not used, as far as this side has heard of it, and why.
    pub fn skipped(&self) -> &[Skipped] {
        &self.meeting.skipped
    }

    /// Waits for the next buffer and says how long it is; `None` after the sender's goodbye.
    pub fn next_len(&mut self) -> Result<Option<u64>> {
        self.next_len_until(None)
    }

    /// As [`Receiver::next_len`], for no longer than `deadline`; `None` is for ever. After
    /// [`Error::Timeout`] nothing is lost: the call can be made again.
    pub fn next_len_until(&mut self, deadline: Option<Instant>) -> Result<Option<u64>> {
        self.meeting.control.check_here()?;
        self.meeting.control.until(deadline);
        match self.end {
            Some(End::Goodbye) => return Ok(None),
            Some(End::Broken) => return Err(Error::Closed { delivered: 0 }),
            None => {}
        }
        Ok(self.begin()?.map(|note| note.words[0]))
    }

    /// Receives the next buffer into the start of `into` and says how long it was. All of it is
    /// there, or an error says how much.
    ///
    /// [`Error::Closed`] after the goodbye; [`Error::TooLarge`], which takes nothing: call again
    /// with more room; [`Error::Forked`] in a child; [`Error::PeerDied`] with the count of bytes, from the start, that are true.
    /// After another error the bytes of `into` are any bytes.
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<usize> {
        self.recv_into_until(into, None)
    }

    /// As [`Receiver::recv_into`], for no longer than `deadline`; `None` is for ever.
    /// [`Error::Timeout`] before a buffer has begun loses nothing. One that is under way is given
    /// up: the sender is told, and the next call is [`Error::Closed`]. While the sender itself
    /// writes into `into` (the mechanism `coop`) this returns only when it has stopped or ended.
    /// The deadline is the caller's wish and says nothing about the sender, which may be slow, or
    /// stopped.
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

    /// Receives the next buffer into memory of its own: on huge pages where the kernel has them and
    /// resident before the copy, or as the mechanism can do better.
    ///
    /// Errors as [`recv_into`](Self::recv_into); [`Error::TooLarge`] for a buffer larger than the
    /// memory this machine has left.
    pub fn recv_new(&mut self) -> Result<Buffer> {
        self.recv_new_until(None)
    }

    /// As [`Receiver::recv_new`], within the time of [`Receiver::recv_into_until`].
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
            // A length is easily claimed; memory that is not there kills.
            let most = host::memory_available().unwrap_or(u64::MAX);
            let whole = usize::try_from(len).ok().filter(|_| len <= most);
            let whole = whole.ok_or(Error::TooLarge { len, most, instead: None })?;
            let memory = Memory::fresh(whole, Pages::Transparent);
            let mut memory = memory.map_err(Error::system("mmap"))?;
            let got = self.recv_into_until(&mut memory, deadline)?;
            if got == whole {
                return Ok(Buffer(memory));
            }
            // After a step down the sender may only repeat the same buffer.
            let what = "another buffer than was announced".to_owned();
            return Err(self.broken(Stop::corrupt(what), 0));
        }
    }

    /// The next buffer's announcement.
    fn begin(&mut self) -> Result<Option<Note>> {
        while self.pending.is_none() {
            let note = match self.meeting.control.hear() {
                // Nothing has begun.
                Err(Stop::Late) => return Err(Error::Timeout),
                note => note.map_err(|stop| self.broken(stop, 0))?,
            };
            match note.say {
                Say::Begin => self.pending = Some(note),
                Say::StepDown => self.step_down().map_err(|stop| self.broken(stop, 0))?,
                Say::Bye => {
                    self.end = Some(End::Goodbye);
                    return Ok(None);
                }
                other => {
                    let what = format!("{other:?} between two buffers");
                    return Err(self.broken(Stop::corrupt(what), 0));
                }
            }
        }
        Ok(self.pending)
    }

    /// Answers the sender. Whether the buffer is there; if not, it comes again by another
    /// mechanism.
    fn settle(&mut self, outcome: std::result::Result<(), Broken>) -> Result<bool> {
        let control = &mut self.meeting.control;
        let Err(Broken { delivered, stop }) = outcome else {
            // A sender that died now has lost nothing; the next call will notice.
            let _ = control.tell(Note::new(Say::Done, &[]));
            return Ok(true);
        };
        let next = match stop {
            Stop::Refused(why) => {
                // Closed first: the sender may be waiting on what the mechanism holds.
                self.incoming = Box::new(NoMechanism);
                let errno = why.errno.map_or(0, |errno| errno.raw_os_error() as u64);
                let mechanism = self.chosen.info.name.to_owned();
                self.meeting.skipped.push(Skipped { mechanism, reason: why.reason });
                self.refuse(errno)
            }
            // Its pipe has ended. If it lives, it has something to say.
            Stop::Gone(_) => self.hear_step_down(),
            other => Err(other),
        };
        match next {
            Ok(()) => Ok(false),
            Err(stop) => Err(self.broken(stop, delivered)),
        }
    }

    fn refuse(&mut self, errno: u64) -> std::result::Result<(), Stop> {
        self.meeting.control.tell(Note::new(Say::Refused, &[errno]))?;
        self.hear_step_down()
    }

    fn hear_step_down(&mut self) -> std::result::Result<(), Stop> {
        match self.meeting.control.hear()?.say {
            Say::StepDown => self.step_down(),
            // It gave up in the middle of a buffer.
            Say::Bye => Err(Stop::Gone(Gone::Died)),
            other => Err(Stop::corrupt(format!("{other:?} in the middle of a buffer"))),
        }
    }

    /// Agrees on another mechanism.
    fn step_down(&mut self) -> std::result::Result<(), Stop> {
        self.incoming = Box::new(NoMechanism);
        let (mechanism, known) = (self.chosen.info.name, &self.meeting.skipped);
        if !known.iter().any(|skipped| skipped.mechanism == mechanism) {
            let reason = "given up by the sender".to_owned();
            self.meeting.skipped.push(Skipped { mechanism: mechanism.to_owned(), reason });
        }
        (self.chosen, self.incoming) = self.meeting.accept()?;
        Ok(())
    }

    pub(super) fn broken(&mut self, stop: Stop, delivered: u64) -> Error {
        self.give_up();
        error_of(stop, delivered)
    }

    /// Nothing more is received.
    pub(super) fn give_up(&mut self) {
        self.end = Some(End::Broken);
        self.meeting.control.close();
    }

    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.meeting.control
    }

    /// Whether the two trust each other.
    pub(super) fn trusts(&self) -> bool {
        self.meeting.ends.trusted.is_ok()
    }

    /// Records what is not used.
    pub(super) fn skip(&mut self, what: &str, reason: String) {
        self.meeting.skip(what, reason);
    }
}

/// Between two mechanisms.
struct NoMechanism;

impl Incoming for NoMechanism {
    #[allow(private_interfaces)]
    fn receive(
        &mut self,
        _: Note,
        _: &mut [u8],
        _: &mut Control,
    ) -> std::result::Result<(), Broken> {
        Err(Stop::Refused(Unfit::because("no mechanism is in use")).into())
    }
}
