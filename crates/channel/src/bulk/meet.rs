//! How two ends agree: they introduce themselves, then the sender offers arm after arm until both
//! have one that works between them. Every arm that was passed over is recorded with the reason.

use super::arm::{Arm, Ends, Incoming, Outgoing, Parcel, Token};
use super::arms::by_name;
use super::choose::{Destination, Facts, Options, choose};
use super::life::Sign;
use super::packet::{Kind, Packet};
use super::page::{PAGE, Page};
use super::talk::{Stop, Talk, unfit};
use crate::error::Error;
use crate::link::Link;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::time::Instant;
use thalweg_core::{Info, Judgement, Tuning, Unfit};
use thalweg_sys::Errno;

/// What a receiver keeps of arms that are not used, at most: more than any build has arms.
const MOST_SKIPPED: usize = 64;

/// An arm that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub arm: String,
    /// The reason, in words.
    pub reason: String,
}

/// What both kinds of end have.
pub(crate) struct Meeting {
    pub talk: Talk,
    pub ends: Ends,
    pub facts: Facts,
    pub skipped: Vec<Skipped>,
}

impl Meeting {
    /// Introduces this side, reads how the other one does. `makes_page` is true for the sender, which
    /// speaks first.
    pub fn begin(
        link: Link,
        options: &Options,
        deadline: Option<Instant>,
        makes_page: bool,
    ) -> Result<Self, Stop> {
        let mut talk = Talk::new(link, options.wait, options.stop);
        talk.until(deadline);
        let mut skipped = Vec::new();
        let sign = Sign::make().ok();
        let own = token();
        let (theirs, page);
        if makes_page {
            let made = Page::create(PAGE).map_err(|errno| unfit("memfd_create", errno));
            let handed = made.as_ref().ok().map(|(_, fd)| fd);
            introduce(&talk, options, (sign.as_ref(), handed), false)?;
            theirs = Introduced::hear(&mut talk)?;
            page = match made {
                Ok((page, _)) if theirs.has_page => Ok(page),
                Ok(_) => Err(Unfit::because("the receiver cannot use it")),
                Err(why) => Err(why),
            };
        } else {
            let mut heard = Introduced::hear(&mut talk)?;
            page = match heard.fds.pop().map(|fd| Page::adopt(fd, PAGE)) {
                // Whoever hands over what may shrink is up to something.
                Some(Err(errno @ Errno::ACCESS)) => {
                    return Err(Stop::refused("mapping the peer's page", errno));
                }
                Some(page) => page.map_err(|errno| unfit("mapping the peer's page", errno)),
                None => Err(Unfit::because("the sender has none")),
            };
            introduce(&talk, options, (sign.as_ref(), None), page.is_ok())?;
            theirs = heard;
        }
        if let Some((sign, _)) = sign {
            talk.show(sign);
        }
        if let Err(why) = talk.watch(theirs.sign) {
            let reason = format!("{}; the peer is looked at now and then instead", why.reason);
            skipped.push(Skipped { arm: "sign of life".to_owned(), reason });
        }
        match page {
            Ok(page) => talk.through(page, usize::from(!makes_page)),
            Err(why) => {
                let reason = format!("{}; notes go over the link", why.reason);
                skipped.push(Skipped { arm: "shared page".to_owned(), reason });
            }
        }
        let theirs = theirs.packet;
        let trusted = trusted(&talk.link, options.trust, theirs.word(2) == 1);
        let ends = Ends {
            pid: talk.link.peer().pid as i32,
            token: (theirs.word(0), theirs.word(1)),
            own_token: own,
            trusted: trusted.clone(),
        };
        let facts = Facts {
            destination: Destination::from_word(theirs.word(3)),
            will_loan: options.will_loan,
            trusted: trusted.err().map(|why| why.reason),
            size: options.size,
            free_core: talk.has_free_core(),
        };
        Ok(Self { talk, ends, facts, skipped })
    }

    fn skip(&mut self, arm: &str, reason: impl Into<String>) {
        let (arm, reason) = (arm.to_owned(), reason.into());
        self.skipped.push(Skipped { arm, reason });
    }

    /// The sender's part: offers until one is taken.
    pub fn offer(&mut self, options: &Options) -> Result<(Chosen, Box<dyn Outgoing>), Stop> {
        for verdict in choose(&self.facts, options, options.measured.as_deref()).verdicts {
            let Some(arm) = by_name(verdict.mechanism) else { continue };
            let (info, tuning) = (arm.info(), verdict.tuning);
            if self.skipped.iter().any(|skipped| skipped.arm == info.name) {
                continue;
            }
            let offered = match verdict.judgement {
                Judgement::Unfit { reason } => Err(Unfit::because(reason)),
                _ => self.offer_one(arm, &tuning)?,
            };
            match offered {
                Ok(outgoing) => return Ok((Chosen { info, tuning }, outgoing)),
                Err(why) => self.skip(info.name, why.reason),
            }
        }
        let why = self.nothing_left(options);
        self.talk.send(&Packet::new(Kind::GiveUp).text(&*why), &[])?;
        Err(Stop::Refused(Unfit::because(why)))
    }

    fn offer_one(
        &mut self,
        arm: &'static dyn Arm,
        tuning: &Tuning,
    ) -> Result<Result<Box<dyn Outgoing>, Unfit>, Stop> {
        let (mut outgoing, parcel) = match arm.offer(tuning, &self.ends) {
            Ok(made) => made,
            Err(why) => return Ok(Err(why)),
        };
        let offer = Packet::new(Kind::Offer).text(arm.info().name).tuning(tuning);
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.talk.send(&offer.words(&parcel.words), &fds)?;
        drop(parcel);
        let (answer, fds) = self.talk.packet()?;
        match answer.kind {
            Kind::Accept => {}
            Kind::Refuse => {
                return Ok(Err(Unfit::because(format!("the receiver: {}", answer.text))));
            }
            other => return Err(Stop::Corrupt(format!("{other:?} for an answer to an offer"))),
        }
        let parcel = Parcel { words: answer.words, fds };
        match outgoing.agreed(parcel, &self.ends) {
            Ok(()) => {
                self.talk.send(&Packet::new(Kind::Agreed), &[])?;
                Ok(Ok(outgoing))
            }
            Err(why) => {
                self.talk.send(&Packet::new(Kind::Withdraw).text(&*why.reason), &[])?;
                Ok(Err(why))
            }
        }
    }

    fn nothing_left(&self, options: &Options) -> String {
        let mut why = match &options.only {
            Some(name) if by_name(name).is_none() => format!("there is no arm named {name}"),
            Some(name) => format!("{name} cannot be used between these two processes"),
            None => "no arm works between these two processes".to_owned(),
        };
        for skipped in &self.skipped {
            let _ = write!(why, "; {}: {}", skipped.arm, skipped.reason);
        }
        why
    }

    /// The receiver's part: takes offers until one is agreed upon.
    pub fn accept(&mut self) -> Result<Accepted, Stop> {
        loop {
            // A sender that never runs out of offers keeps us from nothing.
            self.talk.wanted()?;
            if self.skipped.len() > MOST_SKIPPED {
                return Err(Stop::Corrupt("offers without end".to_owned()));
            }
            let (offer, fds) = self.talk.packet()?;
            match offer.kind {
                Kind::Offer => {}
                // Of a buffer that did not arrive by the arm before.
                Kind::Memory => continue,
                Kind::GiveUp => return Err(Stop::Refused(Unfit::because(offer.text))),
                other => return Err(Stop::Corrupt(format!("{other:?} instead of an offer"))),
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
    ) -> Result<Result<Accepted, Unfit>, Stop> {
        let arm = by_name(name).ok_or_else(|| Unfit::because("not in this build"));
        let accepted = arm.and_then(|arm| {
            let (incoming, parcel) = arm.accept(tuning, parcel, &self.ends)?;
            Ok((arm.info(), incoming, parcel))
        });
        let (info, incoming, parcel) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                self.talk.send(&Packet::new(Kind::Refuse).text(&*why.reason), &[])?;
                return Ok(Err(why));
            }
        };
        let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
        self.talk.send(&Packet::new(Kind::Accept).words(&parcel.words), &fds)?;
        let (answer, _) = self.talk.packet()?;
        match answer.kind {
            Kind::Agreed => Ok(Ok((Chosen { info, tuning: tuning.clone() }, incoming))),
            Kind::Withdraw => {
                Ok(Err(Unfit::because(format!("withdrawn by the sender: {}", answer.text))))
            }
            other => Err(Stop::Corrupt(format!("{other:?} after an answer to an offer"))),
        }
    }
}

/// The arm in use.
pub(crate) struct Chosen {
    pub info: &'static Info,
    pub tuning: Tuning,
}

/// An arm in use at the receiver.
type Accepted = (Chosen, Box<dyn Incoming>);

/// Whether the two may use each other's memory.
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

/// What the peer said of itself, and what it handed over.
struct Introduced {
    packet: Packet,
    /// Memory with its sign of life.
    sign: Option<OwnedFd>,
    /// What else came: the sender's page.
    fds: Vec<OwnedFd>,
    /// The receiver will speak through the sender's page.
    has_page: bool,
}

impl Introduced {
    fn hear(talk: &mut Talk) -> Result<Self, Stop> {
        let (packet, mut fds) = talk.packet()?;
        if packet.kind != Kind::Hello {
            return Err(Stop::Corrupt("the peer does not introduce itself".to_owned()));
        }
        let sign = (packet.word(4) == 1 && !fds.is_empty()).then(|| fds.remove(0));
        let has_page = packet.word(5) == 1;
        Ok(Self { packet, sign, fds, has_page })
    }
}

/// Says who we are, and hands over our sign of life and the page, where there are such.
fn introduce(
    talk: &Talk,
    options: &Options,
    (sign, page): (Option<&(Sign, OwnedFd)>, Option<&OwnedFd>),
    has_page: bool,
) -> Result<(), Stop> {
    let own = token();
    let hello = Packet::new(Kind::Hello).words(&[
        own.as_ptr() as u64,
        own.load(Ordering::Relaxed),
        u64::from(options.trust),
        options.destination as u64,
        u64::from(sign.is_some()),
        u64::from(has_page),
    ]);
    let fds = sign.map(|(_, fd)| fd.as_fd()).into_iter().chain(page.map(AsFd::as_fd));
    talk.send(&hello, &fds.collect::<Vec<_>>())
}

/// A word nobody could guess, at a place that does not move: who reads it from this process has the
/// right process. It carries the process number, because a child made by fork inherits the word at
/// the same place, and must not pass for its parent.
fn token() -> &'static Token {
    static TOKEN: Token = Token::new(0);
    /// Process numbers are below 2^22 (proc(5), pid_max).
    const PROCESS: u64 = (1 << 22) - 1;
    let now = TOKEN.load(Ordering::Relaxed);
    let us = u64::from(std::process::id()) & PROCESS;
    if now & PROCESS != us {
        let fresh = RandomState::new().build_hasher().finish() & !PROCESS | us;
        // Relaxed: nothing else depends on it. Another thread that was first is as good.
        let _ = TOKEN.compare_exchange(now, fresh, Ordering::Relaxed, Ordering::Relaxed);
    }
    &TOKEN
}

/// What a stop means to the caller.
pub(crate) fn error_of(stop: Stop, delivered: u64) -> Error {
    match stop {
        Stop::Died => Error::PeerDied { delivered, partial: 0 },
        Stop::Interrupted => Error::System { call: "bulk transfer", errno: Errno::INTR },
        Stop::Late => Error::Timeout,
        Stop::Refused(why) => Error::not_permitted(why.reason),
        Stop::Corrupt(what) => Error::corrupt(what),
    }
}
