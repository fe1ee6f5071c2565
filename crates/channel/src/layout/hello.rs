//! The messages of the handshake: 64 bytes each, over the link.

use super::{Fault, VERSION, put, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"THALWEGH";

/// What a message of the handshake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A producer's first: its memory comes along.
    Offer,
    /// A consumer's first.
    Ask,
    /// The consumer's answer: it has checked the producer's memory; its own comes along.
    Accept,
    /// The producer's last: it has checked the consumer's memory.
    Ready,
    /// The end of it.
    Refuse(Refusal),
}

/// Why a handshake ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ring has its consumer.
    Taken,
    /// Both are producers, or both are consumers.
    SameRole,
    /// The memory is not sealed, or is not what it is said to be.
    Memory,
    /// Something else; also what later versions may say.
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

    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Taken => "the peer's ring has a consumer already",
            Self::SameRole => "both ends have the same role; one must produce and one consume",
            Self::Memory => "the peer found our memory not sealed as agreed",
            Self::Other => "the peer refused",
        }
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it says.
    pub kind: Kind,
    /// Of the channel; 0 in an Ask and where there is none yet.
    pub epoch: u64,
}

impl Hello {
    /// Bytes of a message.
    pub const LEN: usize = 64;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, code) = match self.kind {
            Kind::Offer => (1, 0),
            Kind::Ask => (2, 0),
            Kind::Accept => (3, 0),
            Kind::Ready => (4, 0),
            Kind::Refuse(why) => (5, why.code()),
        };
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 12, &u32::to_le_bytes(kind));
        put(&mut bytes, 16, &self.epoch.to_le_bytes());
        put(&mut bytes, 24, &code.to_le_bytes());
        bytes
    }

    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() != Self::LEN || bytes[..8] != *MAGIC {
            return Err(format!("{} bytes that are no handshake of ours", bytes.len()));
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(format!("version {}: only {VERSION} is known", u32_at(bytes, 8)));
        }
        let kind = match u32_at(bytes, 12) {
            1 => Kind::Offer,
            2 => Kind::Ask,
            3 => Kind::Accept,
            4 => Kind::Ready,
            5 => Kind::Refuse(Refusal::of(u32_at(bytes, 24))),
            other => return Err(format!("handshake message of kind {other}")),
        };
        Ok(Self { kind, epoch: u64_at(bytes, 16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_comes_back() {
        let refusals = [Refusal::Taken, Refusal::SameRole, Refusal::Memory, Refusal::Other];
        let kinds = [Kind::Offer, Kind::Ask, Kind::Accept, Kind::Ready].into_iter();
        for kind in kinds.chain(refusals.map(Kind::Refuse)) {
            let hello = Hello { kind, epoch: 9 };
            assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
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
            let mut near = Hello { kind: Kind::Offer, epoch: 3 }.to_bytes();
            near[at] = value;
            let _ = Hello::parse(&near);
        }
    }
}
