//! Negotiation between two ends. After their introductions, the sender offers one mechanism after another until one
//! works between them. Both sides record every rejected mechanism with the reason.

use super::choose::{Options, choose};
use super::control::{BulkControl, ReceivedControl};
use super::control_message::{ControlKind, ControlMessage, LONGEST};
use super::facts::{Destination, Facts};
use super::mechanism::{Incoming, Mechanism, Outgoing, Parcel, PeerToken, TransferEnds};
use super::mechanisms::by_name;
use crate::error::Error;
use crate::layout::{Geometry, Introduction, Role};
use crate::link::Link;
use crate::shared::end::ChannelEnd;
use crate::shared::handshake::{Accepted, AskedParty, MetSides, Offered, Party, new_epoch};
use crate::shared::line::LinkLine;
use crate::shared::liveness::Gone;
use crate::shared::stop::WaitStop;
use crate::shared::wait::WaitLimits;
use rustix::fd::AsFd;
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::Instant;
use thalweg_core::{Info, Judgement, Tuning, Unfit};
use thalweg_sys::Errno;

/// Maximum number of rejected mechanisms that a receiver records. Every build has fewer mechanisms, so an honest sender
/// never exceeds it.
const MOST_SKIPPED: usize = 64;

/// A mechanism that is not used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the mechanism.
    pub mechanism: String,
    /// Reason as text.
    pub reason: String,
}

/// State of a sender or receiver after the introductions.
pub(crate) struct MetPeer {
    pub control: BulkControl,
    pub ends: TransferEnds,
    pub facts: Facts,
    pub skipped: Vec<Skipped>,
}

impl MetPeer {
    /// Sets up shared memory with the peer and processes the peer's introduction.
    pub fn begin(
        link: Link,
        options: &Options,
        deadline: Option<Instant>,
        role: Role,
    ) -> Result<Self, WaitStop> {
        let limits = WaitLimits { deadline, stop: options.stop };
        let own_token = token();
        let introduction = Introduction {
            trusts: options.trust,
            shares: false,
            token_at: own_token.as_ptr() as u64,
            token: own_token.load(Ordering::Relaxed),
            destination: options.destination as u32,
        };
        let party = Party { link, role, introduction: Some(introduction), limits };
        let MetSides { link, memory, peer } = shake_hands(party)?;
        let peer = peer.unwrap_or_default();
        let (pid, trusted) = (link.peer().pid as i32, trusted(&link, options.trust, peer.trusts));
        let line = LinkLine::new(link, LONGEST);
        let mut skipped = Vec::new();
        let mut skip = |what: &str, reason: String| {
            skipped.push(Skipped { mechanism: what.to_owned(), reason });
        };
        let shares = memory.as_ref().map(drop).map_err(Clone::clone);
        let control = match memory {
            Ok(sides) => {
                let end = ChannelEnd::new(sides, line, options.wait);
                if !end.sleeps_on_futexes() {
                    let why = "futex_waitv is not supported, or the kernel would not report the peer's death";
                    skip("futex wait", format!("{why}; thalweg polls the link instead"));
                }
                BulkControl::shared(end, limits)
            }
            Err(why) => {
                skip(
                    "shared memory",
                    format!("{}; control messages go over the link instead", why.reason),
                );
                BulkControl::over(line, limits)
            }
        };
        let ends = TransferEnds {
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
        // Several files may fail for the same reason; record it only once.
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Sender's part of the negotiation: offers mechanisms until the receiver accepts one.
    pub fn offer(
        &mut self,
        options: &Options,
    ) -> Result<(ChosenMechanism, Box<dyn Outgoing>), WaitStop> {
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
                Ok(outgoing) => return Ok((ChosenMechanism { info, tuning }, outgoing)),
                Err(why) if has_died(&why) => return Err(WaitStop::Gone(Gone::Died)),
                Err(why) => self.skip(info.name, why.reason),
            }
        }
        let why = self.nothing_left(options);
        self.control.send(&ControlMessage::new(ControlKind::GiveUp).text(&*why), &[])?;
        Err(WaitStop::Refused(Unfit::because(why)))
    }

    fn offer_one(
        &mut self,
        mechanism: &'static dyn Mechanism,
        tuning: &Tuning,
    ) -> Result<Result<Box<dyn Outgoing>, Unfit>, WaitStop> {
        let (mut outgoing, parcel) = match mechanism.offer(tuning, &self.ends) {
            Ok(made) => made,
            Err(why) => return Ok(Err(why)),
        };
        let offer =
            ControlMessage::new(ControlKind::Offer).text(mechanism.info().name).tuning(tuning);
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.control.send(&offer.words(&parcel.words), &fds)?;
        drop(parcel);
        let ReceivedControl { message: answer, fds } = self.control.message()?;
        match answer.kind {
            ControlKind::Accept => {}
            ControlKind::Refuse => {
                return Ok(Err(Unfit::because(format!(
                    "rejected by the receiver: {}",
                    answer.text
                ))));
            }
            other => {
                return Err(WaitStop::corrupt(format!(
                    "unexpected answer to the offer of a method: {other:?}"
                )));
            }
        }
        let parcel = Parcel { words: answer.words, fds };
        match outgoing.agreed(parcel, &self.ends) {
            Ok(()) => {
                self.control.send(&ControlMessage::new(ControlKind::Agreed), &[])?;
                Ok(Ok(outgoing))
            }
            Err(why) => {
                self.control
                    .send(&ControlMessage::new(ControlKind::Withdraw).text(&*why.reason), &[])?;
                Ok(Err(why))
            }
        }
    }

    fn nothing_left(&self, options: &Options) -> String {
        let mut why = match &options.only {
            Some(name) if by_name(name).is_none() => format!("unknown method {name}"),
            Some(name) => format!("{name} cannot be used between these two processes"),
            None => "no method works between these two processes".to_owned(),
        };
        for skipped in &self.skipped {
            let _ = write!(why, "; {}: {}", skipped.mechanism, skipped.reason);
        }
        why
    }

    /// Receiver's part of the negotiation: handles offers until both sides agree on one.
    pub fn accept(&mut self) -> Result<TakenOffer, WaitStop> {
        loop {
            // A sender that keeps making offers must not keep this call beyond its deadline.
            self.control.wanted()?;
            if self.skipped.len() > MOST_SKIPPED {
                return Err(WaitStop::corrupt("too many methods offered"));
            }
            let ReceivedControl { message: offer, fds } = self.control.message()?;
            match offer.kind {
                ControlKind::Offer => {}
                // Ignore this message. It belongs to a buffer that the previous mechanism did not deliver.
                ControlKind::Memory => continue,
                ControlKind::GiveUp => return Err(WaitStop::Refused(Unfit::because(offer.text))),
                other => {
                    return Err(WaitStop::corrupt(format!(
                        "expected the offer of a method, got {other:?}"
                    )));
                }
            }
            let parcel = Parcel { words: offer.words, fds };
            match self.accept_one(&offer.text, &offer.tuning, parcel)? {
                Ok(agreed) => return Ok(agreed),
                Err(why) if has_died(&why) => return Err(WaitStop::Gone(Gone::Died)),
                Err(why) => self.skip(&offer.text, why.reason),
            }
        }
    }

    fn accept_one(
        &mut self,
        name: &str,
        tuning: &Tuning,
        parcel: Parcel,
    ) -> Result<Result<TakenOffer, Unfit>, WaitStop> {
        let mechanism = by_name(name)
            .ok_or_else(|| Unfit::because("the receiver's build does not have this method"));
        let accepted = mechanism.and_then(|mechanism| {
            let (incoming, parcel) = mechanism.accept(tuning, parcel, &self.ends)?;
            Ok((mechanism.info(), incoming, parcel))
        });
        let (info, incoming, parcel) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                self.control
                    .send(&ControlMessage::new(ControlKind::Refuse).text(&*why.reason), &[])?;
                return Ok(Err(why));
            }
        };
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.control.send(&ControlMessage::new(ControlKind::Accept).words(&parcel.words), &fds)?;
        let answer = self.control.message()?.message;
        match answer.kind {
            ControlKind::Agreed => {
                Ok(Ok((ChosenMechanism { info, tuning: tuning.clone() }, incoming)))
            }
            ControlKind::Withdraw => {
                Ok(Err(Unfit::because(format!("withdrawn by the sender: {}", answer.text))))
            }
            other => Err(WaitStop::corrupt(format!(
                "unexpected message after the answer to an offer: {other:?}"
            ))),
        }
    }
}

/// The mechanism in use, with its tuning.
pub(crate) struct ChosenMechanism {
    pub info: &'static Info,
    pub tuning: Tuning,
}

/// The mechanism that a receiver accepted, and the receiver's end of it.
type TakenOffer = (ChosenMechanism, Box<dyn Incoming>);

/// Checks that both sides may access each other's memory. `we` and `they` are `true` if this side and the peer trust
/// each other.
fn trusted(link: &Link, we: bool, they: bool) -> Result<(), Unfit> {
    let peer = link.peer();
    let us = rustix::process::geteuid().as_raw();
    let why = match () {
        () if !we => "this process does not trust its peer".to_owned(),
        () if !they => "the peer does not trust this process".to_owned(),
        () if peer.uid != us => {
            format!("the peer belongs to user {}, this process to user {us}", peer.uid)
        }
        () if peer.pid == 0 => "the peer runs in another PID namespace".to_owned(),
        () if peer.pidfd.is_none() => {
            "no pidfd of the peer is available to check its identity".to_owned()
        }
        () => return Ok(()),
    };
    Err(Unfit::because(why))
}

/// Returns `true` if a call failed because the peer is exiting. The kernel frees the memory of a killed process, and
/// then reports ESRCH, before it closes the sockets and the pidfd reports the death.
fn has_died(why: &Unfit) -> bool {
    why.errno == Some(Errno::SRCH)
}

/// Runs the handshake. Converts a failed system call into a refusal, as the mechanisms do.
fn shake_hands(party: Party) -> Result<MetSides, WaitStop> {
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
        party.ask().and_then(AskedParty::accept).and_then(Accepted::finish)
    };
    shaken.map_err(|stop| match stop {
        WaitStop::Failed(Error::System { call, errno }) => WaitStop::refused(call, errno),
        stop => stop,
    })
}

/// Returns a random word at a fixed address of this process. A peer that reads this value at this address knows that it
/// reads this process and no other. The word contains the process id, because a forked child inherits the word and
/// could otherwise be taken for its parent.
fn token() -> &'static PeerToken {
    static TOKEN: PeerToken = PeerToken::new(0);
    /// Process ids are below 2^22 (proc(5), pid_max).
    const PROCESS: u64 = (1 << 22) - 1;
    let now = TOKEN.load(Ordering::Relaxed);
    let us = u64::from(std::process::id()) & PROCESS;
    if now & PROCESS != us {
        let fresh = RandomState::new().build_hasher().finish() & !PROCESS | us;
        // Relaxed, because no other data depends on the word. If another thread has set the word first, its value
        // serves equally well.
        let _ = TOKEN.compare_exchange(now, fresh, Ordering::Relaxed, Ordering::Relaxed);
    }
    &TOKEN
}

/// Converts a stop into the caller's error. A peer that closes its end without a goodbye counts as dead.
pub(crate) fn error_of(stop: WaitStop, delivered: u64) -> Error {
    match stop {
        WaitStop::Gone(_) => Error::PeerDied { delivered, partial: 0 },
        stop => stop.into_error(delivered),
    }
}

#[cfg(test)]
mod tests;
