//! Negotiation between two ends: they introduce themselves, then the sender offers one mechanism after
//! another until one works between them. Every rejected mechanism is recorded with the reason.

use super::choose::{Options, choose};
use super::control::{Control, Received};
use super::control_message::{ControlMessage, Kind, LONGEST};
use super::facts::{Destination, Facts};
use super::mechanism::{Ends, Incoming, Mechanism, Outgoing, Parcel, Token};
use super::mechanisms::by_name;
use crate::error::Error;
use crate::layout::{Geometry, Introduction, Role};
use crate::link::Link;
use crate::shared::end::End;
use crate::shared::handshake::{Accepted, Asked, Met, Offered, Party, new_epoch};
use crate::shared::line::Line;
use crate::shared::stop::Stop;
use crate::shared::wait::Limits;
use rustix::fd::AsFd;
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::Instant;
use thalweg_core::{Info, Judgement, Tuning, Unfit};

/// Maximum number of rejected mechanisms that a receiver records; larger than the number of mechanisms
/// in any build.
const MOST_SKIPPED: usize = 64;

/// A mechanism that is not used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the mechanism.
    pub mechanism: String,
    /// Reason as text.
    pub reason: String,
}

/// State that sender and receiver have in common.
pub(crate) struct Meeting {
    pub control: Control,
    pub ends: Ends,
    pub facts: Facts,
    pub skipped: Vec<Skipped>,
}

impl Meeting {
    /// Sets up shared memory with the peer and reads its introduction.
    pub fn begin(
        link: Link,
        options: &Options,
        deadline: Option<Instant>,
        role: Role,
    ) -> Result<Self, Stop> {
        let limits = Limits { deadline, stop: options.stop };
        let own_token = token();
        let introduction = Introduction {
            trusts: options.trust,
            shares: false,
            token_at: own_token.as_ptr() as u64,
            token: own_token.load(Ordering::Relaxed),
            destination: options.destination as u32,
        };
        let party = Party { link, role, introduction: Some(introduction), limits };
        let Met { link, memory, peer } = shake_hands(party)?;
        let peer = peer.unwrap_or_default();
        let (pid, trusted) = (link.peer().pid as i32, trusted(&link, options.trust, peer.trusts));
        let line = Line::new(link, LONGEST);
        let mut skipped = Vec::new();
        let mut skip = |what: &str, reason: String| {
            skipped.push(Skipped { mechanism: what.to_owned(), reason });
        };
        let shares = memory.as_ref().map(drop).map_err(Clone::clone);
        let control = match memory {
            Ok(sides) => {
                let end = End::new(sides, line, options.wait);
                if !end.sleeps_on_futexes() {
                    let why = "no futex_waitv here, or the kernel will not mark the peer's word";
                    skip("liveness word", format!("{why}; the link is polled instead"));
                }
                Control::shared(end, limits)
            }
            Err(why) => {
                skip("shared memory", format!("{}; notes go over the link", why.reason));
                Control::over(line, limits)
            }
        };
        let ends = Ends {
            pid,
            token: (peer.token_at, peer.token),
            own_token,
            trusted: trusted.clone(),
            shares,
        };
        let facts = Facts {
            destination: Destination::from_word(u64::from(peer.destination)),
            will_loan: options.will_loan,
            trusted: trusted.err().map(|why| why.reason),
            size: options.size,
            free_core: control.has_free_core(),
        };
        Ok(Self { control, ends, facts, skipped })
    }

    pub fn skip(&mut self, mechanism: &str, reason: impl Into<String>) {
        let skipped = Skipped { mechanism: mechanism.to_owned(), reason: reason.into() };
        // Each of several files may fail for this reason.
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Sender's part: offers mechanisms until one is accepted.
    pub fn offer(&mut self, options: &Options) -> Result<(Chosen, Box<dyn Outgoing>), Stop> {
        for verdict in choose(&self.facts, options, options.measured.as_deref()).verdicts {
            let Some(mechanism) = by_name(verdict.mechanism) else { continue };
            let (info, tuning) = (mechanism.info(), verdict.tuning);
            if self.skipped.iter().any(|skipped| skipped.mechanism == info.name) {
                continue;
            }
            let offered = match verdict.judgement {
                Judgement::Unfit { reason } => Err(Unfit::because(reason)),
                _ => self.offer_one(mechanism, &tuning)?,
            };
            match offered {
                Ok(outgoing) => return Ok((Chosen { info, tuning }, outgoing)),
                Err(why) => self.skip(info.name, why.reason),
            }
        }
        let why = self.nothing_left(options);
        self.control.send(&ControlMessage::new(Kind::GiveUp).text(&*why), &[])?;
        Err(Stop::Refused(Unfit::because(why)))
    }

    fn offer_one(
        &mut self,
        mechanism: &'static dyn Mechanism,
        tuning: &Tuning,
    ) -> Result<Result<Box<dyn Outgoing>, Unfit>, Stop> {
        let (mut outgoing, parcel) = match mechanism.offer(tuning, &self.ends) {
            Ok(made) => made,
            Err(why) => return Ok(Err(why)),
        };
        let offer = ControlMessage::new(Kind::Offer).text(mechanism.info().name).tuning(tuning);
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.control.send(&offer.words(&parcel.words), &fds)?;
        drop(parcel);
        let Received { message: answer, fds } = self.control.message()?;
        match answer.kind {
            Kind::Accept => {}
            Kind::Refuse => {
                return Ok(Err(Unfit::because(format!("the receiver: {}", answer.text))));
            }
            other => return Err(Stop::corrupt(format!("{other:?} for an answer to an offer"))),
        }
        let parcel = Parcel { words: answer.words, fds };
        match outgoing.agreed(parcel, &self.ends) {
            Ok(()) => {
                self.control.send(&ControlMessage::new(Kind::Agreed), &[])?;
                Ok(Ok(outgoing))
            }
            Err(why) => {
                self.control.send(&ControlMessage::new(Kind::Withdraw).text(&*why.reason), &[])?;
                Ok(Err(why))
            }
        }
    }

    fn nothing_left(&self, options: &Options) -> String {
        let mut why = match &options.only {
            Some(name) if by_name(name).is_none() => format!("there is no mechanism named {name}"),
            Some(name) => format!("{name} cannot be used between these two processes"),
            None => "no mechanism works between these two processes".to_owned(),
        };
        for skipped in &self.skipped {
            let _ = write!(why, "; {}: {}", skipped.mechanism, skipped.reason);
        }
        why
    }

    /// Receiver's part: handles offers until one is agreed.
    pub fn accept(&mut self) -> Result<Taken, Stop> {
        loop {
            // A sender that keeps making offers must not prevent the deadline.
            self.control.wanted()?;
            if self.skipped.len() > MOST_SKIPPED {
                return Err(Stop::corrupt("offers without end"));
            }
            let Received { message: offer, fds } = self.control.message()?;
            match offer.kind {
                Kind::Offer => {}
                // Belongs to a buffer that the previous mechanism did not deliver.
                Kind::Memory => continue,
                Kind::GiveUp => return Err(Stop::Refused(Unfit::because(offer.text))),
                other => return Err(Stop::corrupt(format!("{other:?} instead of an offer"))),
            }
            let parcel = Parcel { words: offer.words, fds };
            match self.accept_one(&offer.text, &offer.tuning, parcel)? {
                Ok(agreed) => return Ok(agreed),
                Err(why) => self.skip(&offer.text, why.reason),
            }
        }
    }

    fn accept_one(
        &mut self,
        name: &str,
        tuning: &Tuning,
        parcel: Parcel,
    ) -> Result<Result<Taken, Unfit>, Stop> {
        let mechanism = by_name(name).ok_or_else(|| Unfit::because("not in this build"));
        let accepted = mechanism.and_then(|mechanism| {
            let (incoming, parcel) = mechanism.accept(tuning, parcel, &self.ends)?;
            Ok((mechanism.info(), incoming, parcel))
        });
        let (info, incoming, parcel) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                self.control.send(&ControlMessage::new(Kind::Refuse).text(&*why.reason), &[])?;
                return Ok(Err(why));
            }
        };
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.control.send(&ControlMessage::new(Kind::Accept).words(&parcel.words), &fds)?;
        let answer = self.control.message()?.message;
        match answer.kind {
            Kind::Agreed => Ok(Ok((Chosen { info, tuning: tuning.clone() }, incoming))),
            Kind::Withdraw => {
                Ok(Err(Unfit::because(format!("withdrawn by the sender: {}", answer.text))))
            }
            other => Err(Stop::corrupt(format!("{other:?} after an answer to an offer"))),
        }
    }
}

/// The mechanism in use, with its tuning.
pub(crate) struct Chosen {
    pub info: &'static Info,
    pub tuning: Tuning,
}

/// A mechanism in use at the receiver.
type Taken = (Chosen, Box<dyn Incoming>);

/// Checks that both sides may access each other's memory.
fn trusted(link: &Link, we: bool, they: bool) -> Result<(), Unfit> {
    let peer = link.peer();
    let us = rustix::process::geteuid().as_raw();
    let why = match () {
        () if !we => "this side does not trust its peer".to_owned(),
        () if !they => "the peer does not trust this side".to_owned(),
        () if peer.uid != us => format!("the peer is of user {}, this process of {us}", peer.uid),
        () if peer.pid == 0 => "the peer lives in another pid namespace".to_owned(),
        () if peer.pidfd.is_none() => "no pidfd to know the peer by".to_owned(),
        () => return Ok(()),
    };
    Err(Unfit::because(why))
}

/// Runs the handshake. A failed system call becomes a refusal, as in a mechanism.
fn shake_hands(party: Party) -> Result<Met, Stop> {
    let shaken = if party.role == Role::Sender {
        let geometry = Geometry {
            header: Geometry::header_len(),
            capacity: 0,
            checksums: false,
            epoch: new_epoch()?,
            process: std::process::id(),
        };
        party.offer(geometry).and_then(Offered::finish)
    } else {
        party.ask().and_then(Asked::accept).and_then(Accepted::finish)
    };
    shaken.map_err(|stop| match stop {
        Stop::Failed(Error::System { call, errno }) => Stop::refused(call, errno),
        stop => stop,
    })
}

/// Returns an unguessable word at a fixed address: a process that reads it from this process has opened
/// the right process. It contains the process id, because a forked child inherits the word at this
/// address and must not pass for its parent.
fn token() -> &'static Token {
    static TOKEN: Token = Token::new(0);
    /// Process ids are below 2^22 (proc(5), pid_max).
    const PROCESS: u64 = (1 << 22) - 1;
    let now = TOKEN.load(Ordering::Relaxed);
    let us = u64::from(std::process::id()) & PROCESS;
    if now & PROCESS != us {
        let fresh = RandomState::new().build_hasher().finish() & !PROCESS | us;
        // Relaxed: no other data depends on it. If another thread was first, its value serves equally
        // well.
        let _ = TOKEN.compare_exchange(now, fresh, Ordering::Relaxed, Ordering::Relaxed);
    }
    &TOKEN
}

/// Converts a stop into the caller's error; in a bulk transfer every end of the peer is a death.
pub(crate) fn error_of(stop: Stop, delivered: u64) -> Error {
    match stop {
        Stop::Gone(_) => Error::PeerDied { delivered, partial: 0 },
        stop => stop.into_error(delivered),
    }
}

#[cfg(test)]
mod tests;
