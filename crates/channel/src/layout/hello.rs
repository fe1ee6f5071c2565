//! The handshake messages, each of 64 bytes, which are sent over the link.

use super::{BULK_VERSION, Fault, VERSION, put, u32_at, u64_at};

const RING: &[u8; 8] = b"THALWEGH";
const BULK: &[u8; 8] = b"THALWEGB";

/// Type of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloKind {
    /// First message of a producer or sender. Carries the descriptor of its memory.
    Offer,
    /// First message of a consumer or receiver.
    Ask,
    /// Reply of a consumer or receiver, after it has checked the peer's memory. Carries the descriptor of its own
    /// memory.
    Accept,
    /// Last message of a producer or sender, after it has checked the peer's memory.
    Ready,
    /// Refuses the handshake and ends it.
    Refuse(Refusal),
}

impl HelloKind {
    /// Returns a description of the message type, for error messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Offer => "an offer",
            Self::Ask => "a request",
            Self::Accept => "an acceptance",
            Self::Ready => "a confirmation of the sender",
            Self::Refuse(_) => "a refusal",
        }
    }
}

/// Reason for refusing a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ring already has a consumer.
    Taken,
    /// Both sides want to send, or both want to receive.
    SameRole,
    /// The memory is not sealed, or does not match its description.
    Memory,
    /// Any other reason. Codes of later versions are also parsed as this one.
    Other,
}

impl Refusal {
    const fn code(self) -> u32 {
        match self {
            Self::Other => 0,
            Self::Taken => 1,
            Self::SameRole => 2,
            Self::Memory => 3,
        }
    }

    const fn of(code: u32) -> Self {
        match code {
            1 => Self::Taken,
            2 => Self::SameRole,
            3 => Self::Memory,
            _ => Self::Other,
        }
    }

    /// Returns the reason as text for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Taken => "the peer's ring has a consumer already",
            Self::SameRole => "both ends have the same role; one must send and one receive",
            Self::Memory => "the memory of this process lacks seals that the peer requires",
            Self::Other => "the peer refused the connection",
        }
    }
}

/// Self-description of one end of a bulk transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// `true` if the peer may read and write this process's memory.
    pub trusts: bool,
    /// `true` if the message carries a memory file. In [`HelloKind::Ready`], `true` if both files will be used.
    pub shares: bool,
    /// Address of `token` in this process's memory.
    pub token_at: u64,
    /// A random number by which the peer verifies that it accesses this process and no other.
    pub token: u64,
    /// Code of the receiver's [`Destination`](crate::bulk::Destination).
    pub destination: u32,
}

const TRUSTS: u32 = 1;
const SHARES: u32 = 2;

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Type of the message, with the reason of a refusal.
    pub kind: HelloKind,
    /// Random number that identifies the channel; 0 in an Ask, and if no channel exists yet.
    pub epoch: u64,
    /// Self-description of the side that sends the message; `None` on a ring.
    pub introduction: Option<Introduction>,
}

impl Hello {
    /// Size of a message in bytes.
    pub const LEN: usize = 64;

    /// Builds a message of a ring's handshake.
    pub const fn of_ring(kind: HelloKind, epoch: u64) -> Self {
        Self { kind, epoch, introduction: None }
    }

    /// Encodes the message for the link.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, code) = match self.kind {
            HelloKind::Offer => (1, 0),
            HelloKind::Ask => (2, 0),
            HelloKind::Accept => (3, 0),
            HelloKind::Ready => (4, 0),
            HelloKind::Refuse(why) => (5, why.code()),
        };
        let (magic, version) = match self.introduction {
            None => (RING, VERSION),
            Some(_) => (BULK, BULK_VERSION),
        };
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, magic);
        put(&mut bytes, 8, &version.to_le_bytes());
        put(&mut bytes, 12, &u32::to_le_bytes(kind));
        put(&mut bytes, 16, &self.epoch.to_le_bytes());
        put(&mut bytes, 24, &code.to_le_bytes());
        if let Some(own) = self.introduction {
            let flags = (u32::from(own.trusts) * TRUSTS) | (u32::from(own.shares) * SHARES);
            put(&mut bytes, 28, &flags.to_le_bytes());
            put(&mut bytes, 32, &own.token_at.to_le_bytes());
            put(&mut bytes, 40, &own.token.to_le_bytes());
            put(&mut bytes, 48, &own.destination.to_le_bytes());
        }
        bytes
    }

    /// Parses a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let is_bulk = bytes.starts_with(BULK);
        if bytes.len() != Self::LEN || !(is_bulk || bytes.starts_with(RING)) {
            return Err(format!("invalid handshake message of {} bytes", bytes.len()));
        }
        let (version, known) = (u32_at(bytes, 8), if is_bulk { BULK_VERSION } else { VERSION });
        if version != known {
            return Err(format!("handshake version {version} is not supported, only {known}"));
        }
        let kind = match u32_at(bytes, 12) {
            1 => HelloKind::Offer,
            2 => HelloKind::Ask,
            3 => HelloKind::Accept,
            4 => HelloKind::Ready,
            5 => HelloKind::Refuse(Refusal::of(u32_at(bytes, 24))),
            other => return Err(format!("unknown kind {other} of handshake message")),
        };
        let flags = u32_at(bytes, 28);
        let introduction = is_bulk.then(|| Introduction {
            trusts: flags & TRUSTS != 0,
            shares: flags & SHARES != 0,
            token_at: u64_at(bytes, 32),
            token: u64_at(bytes, 40),
            destination: u32_at(bytes, 48),
        });
        Ok(Self { kind, epoch: u64_at(bytes, 16), introduction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_comes_back() {
        let refusals = [Refusal::Taken, Refusal::SameRole, Refusal::Memory, Refusal::Other];
        let kinds =
            [HelloKind::Offer, HelloKind::Ask, HelloKind::Accept, HelloKind::Ready].into_iter();
        for kind in kinds.chain(refusals.map(HelloKind::Refuse)) {
            let own = Introduction { trusts: true, token: 5, destination: 2, ..Default::default() };
            for introduction in [None, Some(own), Some(Introduction { shares: true, ..own })] {
                let hello = Hello { kind, epoch: 9, introduction };
                assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_crash_the_parser(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            at in 0usize..64,
            value: u8,
        ) {
            let _ = Hello::parse(&bytes);
            let mut near = Hello::of_ring(HelloKind::Offer, 3).to_bytes();
            near[at] = value;
            let _ = Hello::parse(&near);
        }
    }
}
