//! Messages of a bulk transfer over the link. All of them have the format below. The parser checks
//! every length.
//!
//! ```text
//! 0 u32 magic | 4 u16 version | 6 u16 kind | 8 u16 words | 10 u16 knobs | 12 u32 text length
//! 16 words, u64 each | knobs: u8 name length, name, u64 value | text, UTF-8
//! ```
//! All little endian.

use crate::error::{Error, Result};
use crate::layout::BULK_VERSION;
use thalweg_core::Tuning;

/// Size of the longest message in bytes.
pub(crate) const LONGEST: usize = 16 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"TWBK");
const VERSION: u16 = BULK_VERSION as u16;
const HEADER: usize = 16;
/// Maximum number of words. The words are addresses, lengths and counts, so a message needs only a
/// few.
const MOST_WORDS: usize = 32;
const MOST_KNOBS: usize = 32;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum ControlKind {
    /// The sender proposes a mechanism; the text is its name.
    Offer = 1,
    /// The receiver is ready to use the offered mechanism.
    Accept = 2,
    /// The receiver cannot use the offered mechanism; the text is the reason.
    Refuse = 3,
    /// The sender is ready too, and the mechanism is now in use.
    Agreed = 4,
    /// The sender cannot use the mechanism that it offered; another offer follows.
    Withdraw = 5,
    /// The sender has no other mechanism to offer; the text is the reason.
    GiveUp = 6,
    /// A note (`control::Note`) that goes over the link because no memory is shared.
    Note = 7,
    /// Carries the descriptor of memory that a note refers to.
    Memory = 8,
    /// The receiver's reply to the head or the tail of a file. If the reply is negative, the text
    /// is the reason.
    Answer = 9,
    /// From the sender: the descriptor of the open file, instead of the file's bytes.
    File = 10,
}

impl ControlKind {
    const ALL: [Self; 10] = [
        Self::Offer,
        Self::Accept,
        Self::Refuse,
        Self::Agreed,
        Self::Withdraw,
        Self::GiveUp,
        Self::Note,
        Self::Memory,
        Self::Answer,
        Self::File,
    ];
}

/// A message, without its descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlMessage {
    pub kind: ControlKind,
    pub words: Vec<u64>,
    pub tuning: Tuning,
    pub text: String,
}

impl ControlMessage {
    pub fn new(kind: ControlKind) -> Self {
        Self { kind, words: Vec::new(), tuning: Tuning::default(), text: String::new() }
    }

    pub fn words(self, words: &[u64]) -> Self {
        Self { words: words.to_vec(), ..self }
    }

    pub fn text(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    pub fn tuning(self, tuning: &Tuning) -> Self {
        Self { tuning: tuning.clone(), ..self }
    }

    /// Returns word `n`, or 0 if it does not exist.
    pub fn word(&self, n: usize) -> u64 {
        self.words.get(n).copied().unwrap_or(0)
    }

    /// Encodes the message. Truncates a text that would make the message longer than [`LONGEST`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = &self.words[..self.words.len().min(MOST_WORDS)];
        let fit = |(name, _): &(&str, u64)| u8::try_from(name.len()).is_ok();
        let knobs: Vec<(&str, u64)> = self.tuning.iter().filter(fit).take(MOST_KNOBS).collect();
        let knob_bytes: usize = knobs.iter().map(|(name, _)| name.len() + 9).sum();
        let room = LONGEST - HEADER - words.len() * 8 - knob_bytes;
        let text = &self.text[..floor_of_char(&self.text, room)];
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.kind as u16).to_le_bytes());
        bytes.extend((words.len() as u16).to_le_bytes());
        bytes.extend((knobs.len() as u16).to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        for (name, value) in knobs {
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Parses a message of the peer.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut left = Reader(bytes);
        let magic = left.u32()?;
        let version = left.u16()?;
        if magic != MAGIC {
            return Err(Error::corrupt("not a message of a bulk transfer"));
        }
        if version != VERSION {
            let what =
                format!("version {version} of the bulk protocol is not supported, only {VERSION}");
            return Err(Error::corrupt(what));
        }
        let kind = left.u16()?;
        let kind = ControlKind::ALL.into_iter().find(|known| *known as u16 == kind);
        let kind = kind.ok_or_else(|| Error::corrupt("message of unknown type"))?;
        let (words, knobs) = (left.u16()? as usize, left.u16()? as usize);
        let text = left.u32()? as usize;
        if words > MOST_WORDS || knobs > MOST_KNOBS {
            return Err(Error::corrupt("message with too many parts"));
        }
        let words = (0..words).map(|_| left.u64()).collect::<Result<_>>()?;
        let mut tuning = Tuning::default();
        for _ in 0..knobs {
            let len = left.bytes(1)?[0] as usize;
            let name = utf8(left.bytes(len)?)?;
            tuning = tuning.with(&name, left.u64()?);
        }
        let text = utf8(left.bytes(text)?)?;
        if !left.0.is_empty() {
            return Err(Error::corrupt("bytes after the end of a message"));
        }
        Ok(Self { kind, words, tuning, text })
    }
}

fn floor_of_char(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::corrupt("text is not UTF-8"))
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn bytes(&mut self, len: usize) -> Result<&'b [u8]> {
        let (head, rest) =
            self.0.split_at_checked(len).ok_or_else(|| Error::corrupt("truncated message"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| Error::corrupt("truncated message"))
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let tuning = Tuning::of("slot", 4096).with("slots", 4);
        let message = ControlMessage::new(ControlKind::Offer)
            .words(&[1, u64::MAX])
            .tuning(&tuning)
            .text("ring");
        assert_eq!(ControlMessage::parse(&message.to_bytes()).unwrap(), message);
        let long = ControlMessage::new(ControlKind::Refuse).text("\u{e9}".repeat(LONGEST));
        let bytes = long.to_bytes();
        assert!(bytes.len() <= LONGEST);
        assert!(ControlMessage::parse(&bytes).unwrap().text.len() > LONGEST / 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ControlMessage::parse(&bytes);
        }

        #[test]
        fn a_damaged_message_is_a_message_or_an_error(at in 0_usize..64, byte in any::<u8>(), cut in 0_usize..64) {
            let message = ControlMessage::new(ControlKind::Offer).words(&[7]).tuning(&Tuning::of("slot", 1)).text("ring");
            let mut bytes = message.to_bytes();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let _ = ControlMessage::parse(&bytes);
        }
    }
}
