//! Transfers several files over one link, in order. Each file arrives complete and with a verified checksum, or not at
//! all. If one file fails, the others still arrive. `docs/reference/formats.md` specifies the format.
//!
//! The transfer of a file consists of a head, the reply to the head, the data, an empty buffer, a tail, and the reply
//! to the tail. The replies go back over the link. All other parts are buffers of the transfer. A receiver may get the
//! descriptor of the open file instead of the data ([`opened`]).

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

/// Result of a file transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Number of files that are complete at the receiver.
    pub files: u64,
    /// Bytes of data moved, including those of failed files.
    pub bytes: u64,
    /// Failures, each with the file's name.
    pub problems: Vec<(OsString, Problem)>,
    /// Number of files that the sender announced but never sent. Only the sender knows the reason.
    pub missing: u64,
    /// The part of `files` and `bytes` that the receiver copied itself, from files that the sender had open.
    pub from_open: FromOpen,
}

/// Reason why one file is missing at the receiver; the others may be complete. Like that of [`crate::Error`], the
/// `Display` text contains no terminal control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The sender could not read the file, its name is invalid, or the file changed during the transfer.
    #[error("the sender gave up: {}", shown(.why))]
    GivenUp {
        /// The sender's message.
        why: String,
    },
    /// The receiver rejected the file, could not write it, or did not get the announced number of bytes.
    #[error("rejected by the receiver: {}", shown(.why))]
    NotTaken {
        /// The receiver's message.
        why: String,
    },
    /// The received bytes differ from those sent.
    #[error("the data differ: {}", shown(.why))]
    Differs {
        /// Lengths and checksums of the bytes sent and of the bytes received.
        why: String,
    },
}

/// A file as announced by its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// File name: a single path component other than `.` and `..`; `None` for a stream.
    pub name: Option<OsString>,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// Number of files before this one.
    pub number: u64,
    /// Total number of files, if known.
    pub total: Option<u64>,
}

impl Announced {
    /// Returns `true` if no file follows.
    fn is_last(&self) -> bool {
        self.total.is_some_and(|total| self.number.saturating_add(1) >= total)
    }

    /// Returns the number of files that were announced but not sent. `begun` is the number of files sent, including
    /// this one, which is the last.
    fn missing(&self, begun: u64) -> u64 {
        let announced = self.total.unwrap_or(0).max(self.number.saturating_add(1));
        announced.saturating_sub(begun)
    }
}

/// Maximum length of a file name on Linux.
const LONGEST_NAME: usize = 255;
/// Maximum size of a head or tail in bytes.
const LONGEST: usize = 4096;
const MAGIC: [u8; 8] = *b"THALWEGF";
const VERSION: u32 = 1;
/// Value in a message for a number that the sender does not know.
const UNKNOWN: u64 = u64::MAX;

/// The message that precedes the data of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileHead {
    announced: Announced,
    /// Size of the longest data buffer in bytes.
    buffer: u64,
}

/// The message that follows the data of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileTail {
    /// The file is complete. `xxh3` is the 128-bit XXH3 of all bytes.
    Whole { bytes: u64, xxh3: u128 },
    /// The sender has given the file up.
    GivenUp { why: String },
    /// No data was sent. A message over the link carries the open file instead.
    Open { bytes: u64 },
}

/// Returns the name if it is a valid single path component. Such a name cannot lead out of the target directory.
fn checked(name: &[u8]) -> Option<&OsStr> {
    let plain = !name.is_empty() && name.len() <= LONGEST_NAME && name != b"." && name != b"..";
    let plain = plain && !name.iter().any(|byte| [0, b'/'].contains(byte));
    plain.then(|| OsStr::from_bytes(name))
}

impl FileHead {
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

    /// Parses a head. The error describes the invalid part.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let short = || "truncated record at the start of a file".to_owned();
        let (magic, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        if *magic != MAGIC {
            return Err("the sender does not use the file protocol".to_owned());
        }
        let (version, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!(
                "version {version} of the file protocol is not supported, only {VERSION}"
            ));
        }
        let (len, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        let mut words = [0; 4];
        for word in &mut words {
            let (first, after) = rest.split_first_chunk().ok_or_else(short)?;
            (*word, rest) = (u64::from_le_bytes(*first), after);
        }
        if u32::from_le_bytes(*len) as usize != rest.len() {
            return Err("the length of the file name does not match its record".to_owned());
        }
        let name = match rest {
            [] => None,
            name => Some(
                checked(name)
                    .ok_or_else(|| format!("invalid name: {}", shown(OsStr::from_bytes(name))))?,
            ),
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

impl FileTail {
    /// Builds the tail of a complete file from the hasher.
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

/// Outcome of a file, as a number in its tail.
const WHOLE: u64 = 0;
const GIVEN_UP: u64 = 1;
const OPEN: u64 = 2;

/// The receiver's reply to a head or a tail, as word 0 of its message.
const TAKEN: u64 = 0;
const NOT_TAKEN: u64 = 1;
const DIFFERS: u64 = 2;
/// Reply to the tail of an open file: the sender must send the bytes instead.
const BYTES: u64 = 3;
/// Progress report about an open file. Word 1 is the number of bytes copied so far. The reply to the tail follows
/// later.
const SO_FAR: u64 = 4;
/// Word 1 of the reply to a head, if the receiver accepts the open file.
const TAKES_OPEN: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(name: Option<&str>) -> FileHead {
        let name = name.map(OsString::from);
        FileHead { announced: Announced { name, size: Some(7), number: 2, total: None }, buffer: 9 }
    }

    #[test]
    fn heads_and_tails_are_read_as_they_were_written() {
        for head in [head(None), head(Some("a file")), head(Some(&"x".repeat(LONGEST_NAME)))] {
            assert_eq!(FileHead::parse(&head.to_bytes()), Ok(head));
        }
        let whole = FileTail::Whole { bytes: 5, xxh3: 1 << 99 };
        assert_eq!(FileTail::parse(&whole.to_bytes()), Some(whole));
        let open = FileTail::Open { bytes: 7 };
        assert_eq!(FileTail::parse(&open.to_bytes()), Some(open));
        let why = "\u{e9}".repeat(LONGEST);
        let tail = FileTail::GivenUp { why }.to_bytes();
        assert!(tail.len() <= LONGEST);
        let Some(FileTail::GivenUp { why }) = FileTail::parse(&tail) else { panic!("{tail:?}") };
        assert!(why.len() > LONGEST / 4 && !why.contains('\u{fffd}'));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let long = "x".repeat(LONGEST_NAME + 1);
        for name in ["/etc/passwd", "../up", "a/b", ".", "..", "nul\0", &long] {
            let refused = FileHead::parse(&head(Some(name)).to_bytes()).unwrap_err();
            assert!(refused.contains("invalid name"), "{name}: {refused}");
        }
        for name in ["...", "..a", ".hidden", "with space", "\u{e9}"] {
            assert!(FileHead::parse(&head(Some(name)).to_bytes()).is_ok(), "{name}");
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
                if let Ok(head) = FileHead::parse(bytes) {
                    let name = head.announced.name.unwrap_or_default();
                    prop_assert!(!name.as_bytes().contains(&b'/') && name != "..");
                }
                let _ = FileTail::parse(bytes);
            }
        }
    }
}
