//! Several files over one link, in order: each whole with its checksum, or not at all, and what goes
//! wrong with one does not stop the others. `docs/formats.md` has the bytes.
//!
//! A file is a head, the answer to it, the data, an empty buffer, a tail, and the answer to that. All
//! but the answers are buffers of the transfer; the answers go back over the link. A receiver may
//! get the open file in place of the data ([`opened`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use thalweg_core::shown;
use xxhash_rust::xxh3::Xxh3;

mod opened;
mod receive;
mod send;

pub use opened::{FromOpen, NotMoved};
pub use receive::{Sink, Watch};
pub use send::{Item, Pace};

/// What was handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Files that are whole at the other side.
    pub files: u64,
    /// Bytes of data that were moved, those of failed files too.
    pub bytes: u64,
    /// What went wrong, with the name of the file.
    pub problems: Vec<(OsString, Problem)>,
    /// Files that were announced and never begun: only the sender can say why.
    pub missing: u64,
    /// What of it the receiver moved from files that the sender had open.
    pub from_open: FromOpen,
}

/// Why one file is not there, though others may be. Printed as [`crate::Error`] is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The sender could not read it.
    #[error("given up by the sender: {}", shown(.why))]
    GivenUp {
        /// What it said.
        why: String,
    },
    /// The receiver would not or could not take it.
    #[error("not taken: {}", shown(.why))]
    NotTaken {
        /// What it said.
        why: String,
    },
    /// Other bytes came than were sent.
    #[error("the data differ: {}", shown(.why))]
    Differs {
        /// Both checksums.
        why: String,
    },
}

/// A file as its sender announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its name, of one part, which is not `.` or `..`; `None` for a stream.
    pub name: Option<OsString>,
    /// Bytes to come, if that is known.
    pub size: Option<u64>,
    /// Files before it.
    pub number: u64,
    /// Files in all, if that is known.
    pub total: Option<u64>,
}

impl Announced {
    /// Whether nothing comes after it.
    fn is_last(&self) -> bool {
        self.total.is_some_and(|total| self.number.saturating_add(1) >= total)
    }

    /// Files that were announced and are not among the `begun`, of which this is the last.
    fn missing(&self, begun: u64) -> u64 {
        let announced = self.total.unwrap_or(0).max(self.number.saturating_add(1));
        announced.saturating_sub(begun)
    }
}

/// The longest name of a file on Linux.
const LONGEST_NAME: usize = 255;
/// The most bytes of a head or a tail.
const LONGEST: usize = 4096;
const MAGIC: [u8; 8] = *b"THALWEGF";
const VERSION: u32 = 1;
/// In place of a number that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What comes before the data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    announced: Announced,
    /// Bytes of the longest buffer of data.
    buffer: u64,
}

/// What comes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tail {
    /// All of it, and the XXH3 of it, 128 bits.
    Whole { bytes: u64, xxh3: u128 },
    /// No more of it comes.
    GivenUp { why: String },
    /// No data came: the open file is there over the link.
    Open { bytes: u64 },
}

/// A name that can only be that of a file in the folder it is put into.
fn checked(name: &[u8]) -> Option<&OsStr> {
    let plain = !name.is_empty() && name.len() <= LONGEST_NAME && name != b"." && name != b"..";
    let plain = plain && !name.iter().any(|byte| [0, b'/'].contains(byte));
    plain.then(|| OsStr::from_bytes(name))
}

impl Head {
    fn to_bytes(&self) -> Vec<u8> {
        let Announced { name, size, number, total } = &self.announced;
        let name = name.as_deref().unwrap_or_default().as_bytes();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((name.len() as u32).to_le_bytes());
        for word in [size.unwrap_or(UNKNOWN), self.buffer, *number, total.unwrap_or(UNKNOWN)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(name);
        bytes
    }

    /// What is wrong with it, in words, if it is none.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let short = || "a head cut short".to_owned();
        let (magic, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        if *magic != MAGIC {
            return Err("the sender does not announce files".to_owned());
        }
        let (version, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!("the sender speaks version {version} of files, not {VERSION}"));
        }
        let (len, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        let mut words = [0; 4];
        for word in &mut words {
            let (first, after) = rest.split_first_chunk().ok_or_else(short)?;
            (*word, rest) = (u64::from_le_bytes(*first), after);
        }
        if u32::from_le_bytes(*len) as usize != rest.len() {
            return Err("a name of another length than told".to_owned());
        }
        let name = match rest {
            [] => None,
            name => Some(checked(name).ok_or_else(|| {
                format!("a name that leads elsewhere: {}", shown(OsStr::from_bytes(name)))
            })?),
        };
        let known = |word: u64| Some(word).filter(|word| *word != UNKNOWN);
        let [size, buffer, number, total] = words;
        let announced = Announced {
            name: name.map(OsStr::to_owned),
            size: known(size),
            number,
            total: known(total),
        };
        Ok(Self { announced, buffer })
    }
}

impl Tail {
    /// Of everything that went through the hasher.
    fn of(bytes: u64, hasher: &Xxh3) -> Self {
        Self::Whole { bytes, xxh3: hasher.digest128() }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (bytes, xxh3, how, why) = match self {
            Self::Whole { bytes, xxh3 } => (*bytes, *xxh3, WHOLE, ""),
            Self::GivenUp { why } => (0, 0, GIVEN_UP, why.as_str()),
            Self::Open { bytes } => (*bytes, 0, OPEN, ""),
        };
        let mut words = bytes.to_le_bytes().to_vec();
        words.extend(xxh3.to_le_bytes());
        words.extend(how.to_le_bytes());
        let most = (0..=why.len().min(LONGEST / 2)).rev().find(|at| why.is_char_boundary(*at));
        words.extend(&why.as_bytes()[..most.unwrap_or(0)]);
        words
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (xxh3, rest) = rest.split_first_chunk()?;
        let (how, why) = rest.split_first_chunk()?;
        let bytes = u64::from_le_bytes(*count);
        match u64::from_le_bytes(*how) {
            WHOLE => Some(Self::Whole { bytes, xxh3: u128::from_le_bytes(*xxh3) }),
            GIVEN_UP => Some(Self::GivenUp { why: String::from_utf8_lossy(why).into_owned() }),
            OPEN => Some(Self::Open { bytes }),
            _ => None,
        }
    }
}

/// How a file ended, as the number in its tail.
const WHOLE: u64 = 0;
const GIVEN_UP: u64 = 1;
const OPEN: u64 = 2;

/// The receiver's answer to a head or a tail, as the number in its packet.
const TAKEN: u64 = 0;
const NOT_TAKEN: u64 = 1;
const DIFFERS: u64 = 2;
/// To the tail of an open file: its bytes are wanted instead.
const BYTES: u64 = 3;
/// To the same: word 1 is how many bytes are there; the answer itself is still to come.
const SO_FAR: u64 = 4;
/// Word 1 of the answer to a head: the open file would be taken.
const TAKES_OPEN: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(name: Option<&str>) -> Head {
        let name = name.map(OsString::from);
        Head { announced: Announced { name, size: Some(7), number: 2, total: None }, buffer: 9 }
    }

    #[test]
    fn heads_and_tails_are_read_as_they_were_written() {
        for head in [head(None), head(Some("a file")), head(Some(&"x".repeat(LONGEST_NAME)))] {
            assert_eq!(Head::parse(&head.to_bytes()), Ok(head));
        }
        let whole = Tail::Whole { bytes: 5, xxh3: 1 << 99 };
        assert_eq!(Tail::parse(&whole.to_bytes()), Some(whole));
        let open = Tail::Open { bytes: 7 };
        assert_eq!(Tail::parse(&open.to_bytes()), Some(open));
        let why = "\u{e9}".repeat(LONGEST);
        let tail = Tail::GivenUp { why }.to_bytes();
        assert!(tail.len() <= LONGEST);
        let Some(Tail::GivenUp { why }) = Tail::parse(&tail) else { panic!("{tail:?}") };
        assert!(why.len() > LONGEST / 4 && !why.contains('\u{fffd}'));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let long = "x".repeat(LONGEST_NAME + 1);
        for name in ["/etc/passwd", "../up", "a/b", ".", "..", "nul\0", &long] {
            let refused = Head::parse(&head(Some(name)).to_bytes()).unwrap_err();
            assert!(refused.contains("leads elsewhere"), "{name}: {refused}");
        }
        for name in ["...", "..a", ".hidden", "with space", "\u{e9}"] {
            assert!(Head::parse(&head(Some(name)).to_bytes()).is_ok(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_a_reason(
            noise in proptest::collection::vec(any::<u8>(), 0..120),
            from in 0_usize..60,
        ) {
            let mut bytes = head(Some("name")).to_bytes();
            bytes.splice(from.min(bytes.len()).., noise.iter().copied());
            for bytes in [&bytes, &noise] {
                if let Ok(head) = Head::parse(bytes) {
                    let name = head.announced.name.unwrap_or_default();
                    prop_assert!(!name.as_bytes().contains(&b'/') && name != "..");
                }
                let _ = Tail::parse(bytes);
            }
        }
    }
}
