//! How two ends come to share memory: Offer with the producer's, Ask, Accept with the consumer's,
//! Ready. Each checks what it was given before it agrees; a refusal says why and ends it.

use super::Options;
use super::end::End;
use super::memory::Memory;
use crate::error::{Error, Result};
use crate::layout::{Geometry, Hello, Kind, MOST_CAPACITY, Page, Refusal, Role};
use crate::link::Link;
use rustix::fd::{AsFd, OwnedFd};
use std::time::Instant;
use thalweg_sys::Errno;

/// A producer that waits for its consumer.
#[derive(Debug)]
pub(crate) struct Offered {
    link: Link,
    own: Memory,
}

/// A consumer that waits for the offer.
#[derive(Debug)]
pub(crate) struct Asked {
    link: Link,
}

/// A consumer that waits for the last word.
#[derive(Debug)]
pub(crate) struct Accepted {
    link: Link,
    own: Memory,
    peer: Memory,
}

/// Makes the producer's memory and sends it.
pub(crate) fn offer(link: Link, options: &Options) -> Result<Offered> {
    let page = rustix::param::page_size();
    let capacity = options.capacity.max(page as u64).checked_next_power_of_two();
    let capacity = capacity
        .filter(|capacity| *capacity <= MOST_CAPACITY)
        .ok_or(Error::TooLarge { len: options.capacity, most: MOST_CAPACITY, instead: None })?;
    let geometry = Geometry {
        header: page.max(size_of::<Page>().next_power_of_two()) as u32,
        capacity,
        checksums: options.checksums,
        epoch: random()?,
        process: std::process::id(),
    };
    let (own, fd) = Memory::make(Role::Producer, geometry)?;
    greet(&link, Kind::Offer, geometry.epoch, Some(&fd))?;
    Ok(Offered { link, own })
}

impl Offered {
    /// Waits for the consumer's memory, checks it and says that all is ready.
    pub(crate) fn finish(self, deadline: Option<Instant>, options: &Options) -> Result<End> {
        let Self { link, own } = self;
        let epoch = own.geometry.epoch;
        hear(&link, Kind::Ask, deadline)?;
        let (hello, fds) = hear(&link, Kind::Accept, deadline)?;
        let checked = only(fds).and_then(|fd| Memory::of_peer(fd, Role::Consumer));
        let checked = checked.and_then(|peer| {
            let told = Geometry { process: own.geometry.process, ..peer.geometry };
            if told == own.geometry && hello.epoch == epoch {
                return Ok(peer);
            }
            Err(Error::corrupt(format!("we offered {:?} and they took {told:?}", own.geometry)))
        });
        let peer = or_refuse(&link, checked, epoch)?;
        say(&link, Kind::Ready, epoch, None)?;
        Ok(End::new(own, peer, link, options.wait))
    }
}

/// Tells a producer that here is its consumer.
pub(crate) fn ask(link: Link) -> Result<Asked> {
    greet(&link, Kind::Ask, 0, None)?;
    Ok(Asked { link })
}

impl Asked {
    /// Waits for the producer's memory, checks it and sends ours.
    pub(crate) fn accept(self, deadline: Option<Instant>) -> Result<Accepted> {
        let link = self.link;
        let (hello, fds) = hear(&link, Kind::Offer, deadline)?;
        let checked = only(fds).and_then(|fd| Memory::of_peer(fd, Role::Producer));
        let checked = checked.and_then(|peer| {
            if peer.geometry.epoch == hello.epoch {
                return Ok(peer);
            }
            Err(Error::corrupt("the offer and its memory have different epochs"))
        });
        let peer = or_refuse(&link, checked, hello.epoch)?;
        let geometry = Geometry { process: std::process::id(), ..peer.geometry };
        let (own, fd) = Memory::make(Role::Consumer, geometry)?;
        say(&link, Kind::Accept, geometry.epoch, Some(&fd))?;
        Ok(Accepted { link, own, peer })
    }
}

impl Accepted {
    /// Waits until the producer has agreed.
    pub(crate) fn finish(self, deadline: Option<Instant>, options: &Options) -> Result<End> {
        let Self { link, own, peer } = self;
        let (hello, _) = hear(&link, Kind::Ready, deadline)?;
        if hello.epoch != own.geometry.epoch {
            return Err(Error::corrupt("the last word is about another epoch"));
        }
        Ok(End::new(own, peer, link, options.wait))
    }
}

/// Ends a handshake with a reason; a peer that is gone need not hear it.
pub(crate) fn refuse(link: &Link, why: Refusal) {
    let _ = say(link, Kind::Refuse(why), 0, None);
}

fn say(link: &Link, kind: Kind, epoch: u64, fd: Option<&OwnedFd>) -> Result<()> {
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    // The queue of a link holds a whole handshake, so a deadline long past still lets it out.
    link.send_until(&Hello { kind, epoch }.to_bytes(), &fds, Some(Instant::now()))
}

/// Says the first word. If the peer has hung up, it may have left the reason in the link.
fn greet(link: &Link, kind: Kind, epoch: u64, fd: Option<&OwnedFd>) -> Result<()> {
    match say(link, kind, epoch, fd) {
        Err(Error::Closed { .. }) => Ok(()),
        answer => answer,
    }
}

/// Receives a message that must be of one kind.
fn hear(link: &Link, kind: Kind, deadline: Option<Instant>) -> Result<(Hello, Vec<OwnedFd>)> {
    let mut bytes = [0; Hello::LEN];
    let (len, fds) = link.receive_until(&mut bytes, deadline).map_err(|error| match error {
        Error::Closed { delivered } if link.peer_has_ended() => {
            Error::PeerDied { delivered, partial: 0 }
        }
        error => error,
    })?;
    let heard = Hello::parse(&bytes[..len]).map_err(Error::corrupt);
    let heard = or_refuse(link, heard, 0)?;
    match heard.kind {
        got if got == kind => Ok((heard, fds)),
        Kind::Refuse(why) => Err(Error::not_permitted(why.text())),
        Kind::Offer | Kind::Ask => {
            refuse(link, Refusal::SameRole);
            Err(Error::not_permitted(Refusal::SameRole.text()))
        }
        got => Err(Error::corrupt(format!("{got:?} where {kind:?} was due"))),
    }
}

/// Tells the peer before we give up on it.
fn or_refuse<T>(link: &Link, checked: Result<T>, epoch: u64) -> Result<T> {
    if let Err(error) = &checked {
        let why = match error {
            Error::NotPermitted { .. } => Refusal::Memory,
            _ => Refusal::Other,
        };
        let _ = say(link, Kind::Refuse(why), epoch, None);
    }
    checked
}

fn only(mut fds: Vec<OwnedFd>) -> Result<OwnedFd> {
    match (fds.pop(), fds.len()) {
        (Some(fd), 0) => Ok(fd),
        (_, more) => Err(Error::corrupt(format!("{more} descriptors where one was due"))),
    }
}

fn random() -> Result<u64> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            Ok(8) => return Ok(u64::from_le_bytes(bytes)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::System { call: "getrandom", errno }),
        }
    }
}
