//! The handshake that sets up shared memory. Its messages are Offer (with the file of the producer or sender), Ask,
//! Accept (with the file of the other side) and Ready. Each side checks the other's file before it continues. A refusal
//! contains a reason and ends the handshake. A ring requires the shared memory; a bulk transfer can continue without
//! it.

use super::liveness::Gone;
use super::memory::{SideMemory, Sides};
use super::stop::{WaitStop, unfit};
use super::wait::WaitLimits;
use crate::error::{Error, Result};
use crate::layout::{Geometry, Hello, HelloKind, Introduction, Refusal, Role};
use crate::link::Link;
use rustix::fd::{AsFd, OwnedFd};
use std::time::Instant;
use thalweg_core::{Unfit, cadence::LIVENESS};
use thalweg_sys::Errno;

/// A side of a handshake.
#[derive(Debug)]
pub(crate) struct Party {
    pub link: Link,
    pub role: Role,
    /// Self-description of this side in a bulk transfer; `None` on a ring.
    pub introduction: Option<Introduction>,
    pub limits: WaitLimits,
}

/// A producer or sender after its Offer.
#[derive(Debug)]
pub(crate) struct Offered {
    party: Party,
    epoch: u64,
    own: std::result::Result<SideMemory, Unfit>,
}

/// A consumer or receiver after its Ask.
#[derive(Debug)]
pub(crate) struct AskedParty(Party);

/// A consumer or receiver after its Accept.
#[derive(Debug)]
pub(crate) struct Accepted {
    party: Party,
    epoch: u64,
    memory: std::result::Result<Sides, Unfit>,
    peer: Option<Introduction>,
}

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct MetSides {
    pub link: Link,
    /// `Err` occurs only in a bulk transfer, which then continues without shared memory.
    pub memory: std::result::Result<Sides, Unfit>,
    pub peer: Option<Introduction>,
}

/// A message from the peer, with the descriptors that it carried.
struct HeardHello {
    hello: Hello,
    fds: Vec<OwnedFd>,
}

type StopResult<T> = std::result::Result<T, WaitStop>;

impl Party {
    /// Creates our memory and sends its descriptor in an Offer.
    pub fn offer(self, geometry: Geometry) -> StopResult<Offered> {
        let epoch = geometry.epoch;
        let (own, fd) = apart(self.needed(SideMemory::make(self.role, geometry), epoch)?);
        self.greet(HelloKind::Offer, epoch, fd.as_ref())?;
        Ok(Offered { party: self, epoch, own })
    }

    /// Sends an Ask, which shows the producer or sender that this side is connected.
    pub fn ask(self) -> StopResult<AskedParty> {
        self.greet(HelloKind::Ask, 0, None)?;
        Ok(AskedParty(self))
    }

    fn say(
        &self,
        kind: HelloKind,
        epoch: u64,
        shares: bool,
        fd: Option<&OwnedFd>,
    ) -> StopResult<()> {
        let introduction = self.introduction.map(|own| Introduction { shares, ..own });
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        let bytes = Hello { kind, epoch, introduction }.to_bytes();
        // Do not wait. The queue of a link has room for a whole handshake, so the call succeeds even after the
        // deadline.
        let said = self.link.send_until(&bytes, &fds, Some(Instant::now()));
        said.map_err(|error| self.stop_of(error))
    }

    /// Converts a failed call on the link. A closed link may mean that the peer died, because a dying process closes
    /// its files before its pidfd becomes readable. A bulk transfer treats both as a death.
    fn stop_of(&self, error: Error) -> WaitStop {
        match error {
            Error::Closed { .. } if self.link.peer_has_ended() => WaitStop::Gone(Gone::Died),
            Error::Closed { .. } => WaitStop::Gone(Gone::Closed),
            error => WaitStop::Failed(error),
        }
    }

    /// Sends the first message. Ignores a closed link, because the peer may have sent the reason for closing it.
    fn greet(&self, kind: HelloKind, epoch: u64, fd: Option<&OwnedFd>) -> StopResult<()> {
        match self.say(kind, epoch, fd.is_some(), fd) {
            Err(WaitStop::Gone(_)) => Ok(()),
            answer => answer,
        }
    }

    fn receive(&mut self) -> StopResult<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; Hello::LEN];
        let mut gone = None;
        loop {
            match self.link.receive_signed(&mut bytes, Some(Instant::now())) {
                Ok(got) => {
                    self.link.learn(got.sender)?;
                    bytes.truncate(got.len);
                    return Ok((bytes, got.fds));
                }
                Err(Error::Timeout) => {}
                Err(error) => return Err(self.stop_of(error)),
            }
            if let Some(gone) = gone {
                return Err(WaitStop::Gone(gone));
            }
            self.limits.check()?;
            // The peer may have sent a message before it died, so read the link once more.
            gone = (!self.link.peer_is_alive()).then_some(Gone::Died);
            if gone.is_none() {
                self.link.await_news(Some(self.limits.left_of(LIVENESS)))?;
            }
        }
    }

    /// Receives a message that must be of type `kind`.
    fn hear(&mut self, kind: HelloKind) -> StopResult<HeardHello> {
        let (bytes, fds) = self.receive()?;
        let hello = match Hello::parse(&bytes) {
            Ok(hello) if hello.introduction.is_some() != self.introduction.is_some() => {
                Err(Error::corrupt("one end belongs to a ring, the other to a bulk transfer"))
            }
            parsed => parsed.map_err(Error::corrupt),
        };
        let hello = self.checked(hello, 0)?;
        match hello.kind {
            heard if heard == kind => Ok(HeardHello { hello, fds }),
            HelloKind::Refuse(why) => Err(Error::not_permitted(why.text()).into()),
            HelloKind::Offer | HelloKind::Ask => {
                let _ = self.say(HelloKind::Refuse(Refusal::SameRole), 0, false, None);
                Err(Error::not_permitted(Refusal::SameRole.text()).into())
            }
            heard => Err(WaitStop::unexpected(heard.words(), kind.words())),
        }
    }

    /// Maps the memory file that came with a message, after checking it.
    fn map(&self, heard: HeardHello) -> Result<SideMemory> {
        let HeardHello { hello, mut fds } = heard;
        let received = fds.len();
        let Some(fd) = fds.pop().filter(|_| received == 1) else {
            return Err(Error::corrupt(format!("received {received} descriptors instead of one")));
        };
        let peer = SideMemory::of_peer(fd, self.role.peer())?;
        if peer.geometry.epoch == hello.epoch {
            return Ok(peer);
        }
        Err(Error::corrupt("the handshake message and the memory belong to different channels"))
    }

    /// Sends the peer a refusal if `checked` is an error.
    fn checked<T>(&self, checked: Result<T>, epoch: u64) -> Result<T> {
        if let Err(error) = &checked {
            let why = match error {
                Error::NotPermitted { .. } => Refusal::Memory,
                _ => Refusal::Other,
            };
            let _ = self.say(HelloKind::Refuse(why), epoch, false, None);
        }
        checked
    }

    /// Handles a failure to create or map memory. After a failed system call of this side, a bulk transfer continues
    /// without shared memory. If the peer has violated the protocol, the handshake ends.
    fn needed<T>(&self, made: Result<T>, epoch: u64) -> Result<std::result::Result<T, Unfit>> {
        match made {
            Err(Error::System { call, errno }) if !self.role.is_of_ring() => {
                Ok(Err(unfit(call, errno)))
            }
            made => self.checked(made, epoch).map(Ok),
        }
    }

    fn map_if_shared(&self, heard: HeardHello) -> Result<std::result::Result<SideMemory, Unfit>> {
        let introduction = heard.hello.introduction;
        if introduction.is_some_and(|peer| !peer.shares) && heard.fds.is_empty() {
            return Ok(Err(Unfit::because("the peer has no shared memory")));
        }
        let epoch = heard.hello.epoch;
        self.needed(self.map(heard), epoch)
    }
}

impl Offered {
    /// Waits for the memory of the other side, checks it, and sends Ready.
    pub fn finish(self) -> StopResult<MetSides> {
        let Self { mut party, epoch, own } = self;
        party.hear(HelloKind::Ask)?;
        let heard = party.hear(HelloKind::Accept)?;
        let peer = heard.hello.introduction;
        let memory = match (own, party.map_if_shared(heard)?) {
            (Ok(own), Ok(peer)) => {
                let told = Geometry { process: own.geometry.process, ..peer.geometry };
                let agreed = if told == own.geometry {
                    Ok(Sides { own, peer })
                } else {
                    let (ours, theirs) = (own.geometry.in_words(), told.in_words());
                    Err(Error::corrupt(format!("offered {ours}, but the peer accepted {theirs}")))
                };
                Ok(party.checked(agreed, epoch)?)
            }
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        party.say(HelloKind::Ready, epoch, memory.is_ok(), None)?;
        Ok(MetSides { link: party.link, memory, peer })
    }
}

impl AskedParty {
    /// Waits for the offered memory, checks it, and sends ours.
    pub fn accept(self) -> StopResult<Accepted> {
        let mut party = self.0;
        let heard = party.hear(HelloKind::Offer)?;
        let (epoch, introduction) = (heard.hello.epoch, heard.hello.introduction);
        let mut fd = None;
        let memory = match party.map_if_shared(heard)? {
            Ok(peer) => {
                let geometry = Geometry { process: std::process::id(), ..peer.geometry };
                let (own, made) =
                    apart(party.needed(SideMemory::make(party.role, geometry), epoch)?);
                fd = made;
                own.map(|own| Sides { own, peer })
            }
            Err(why) => Err(why),
        };
        party.say(HelloKind::Accept, epoch, fd.is_some(), fd.as_ref())?;
        Ok(Accepted { party, epoch, memory, peer: introduction })
    }
}

impl Accepted {
    /// Waits until the other side has checked our memory.
    pub fn finish(self) -> StopResult<MetSides> {
        let Self { mut party, epoch, mut memory, peer } = self;
        let hello = party.hear(HelloKind::Ready)?.hello;
        if hello.epoch != epoch {
            return Err(WaitStop::corrupt("the last handshake message belongs to another channel"));
        }
        if hello.introduction.is_some_and(|peer| !peer.shares) && memory.is_ok() {
            memory = Err(Unfit::because("the peer cannot use shared memory"));
        }
        Ok(MetSides { link: party.link, memory, peer })
    }
}

/// Refuses the handshake of a ring before it begins. Errors are ignored, because a peer that is gone needs no message.
pub(crate) fn refuse(link: &Link, why: Refusal) {
    let hello = Hello::of_ring(HelloKind::Refuse(why), 0);
    let _ = link.send_until(&hello.to_bytes(), &[], Some(Instant::now()));
}

/// Splits the result of creating our memory: the memory to keep, and the descriptor to send.
fn apart(
    made: std::result::Result<(SideMemory, OwnedFd), Unfit>,
) -> (std::result::Result<SideMemory, Unfit>, Option<OwnedFd>) {
    match made {
        Ok((memory, fd)) => (Ok(memory), Some(fd)),
        Err(why) => (Err(why), None),
    }
}

/// Returns a random number for a new channel.
pub(crate) fn new_epoch() -> Result<u64> {
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
