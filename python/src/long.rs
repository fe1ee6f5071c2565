//! Messages that are larger than their ring: they go through it in parts, as docs/formats.md has them, and are put together
//! in the receiver's own memory. What a peer wrote is checked before anything is made of it.

use crate::header::BEFORE;
use crate::memory::{Pool, Room};

pub const MAGIC: [u8; 8] = *b"THALWEGL";
const VERSION: u16 = 1;

/// Which bytes of which message one part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which long message of its sender.
    pub serial: u32,
    /// Bytes of the whole message.
    pub total: usize,
    /// Where its first byte belongs.
    pub at: usize,
}

impl Part {
    /// Bytes before those of the message.
    pub const HEAD: usize = 32;

    pub fn head(&self) -> [u8; Self::HEAD] {
        let mut head = [0; Self::HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&self.serial.to_le_bytes());
        head[16..24].copy_from_slice(&(self.total as u64).to_le_bytes());
        head[24..].copy_from_slice(&(self.at as u64).to_le_bytes());
        head
    }

    /// A part and its bytes; `None` of another message. Each byte of the header is read once.
    pub fn read(message: &[u8]) -> Option<Result<(Self, &[u8]), String>> {
        let (head, bytes) = message.split_first_chunk::<{ Self::HEAD }>()?;
        let head = *head;
        let number = |at: usize, bytes: usize| {
            head[at..at + bytes].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        if head[..8] != MAGIC {
            return None;
        }
        if number(8, 2) != u64::from(VERSION) || number(10, 2) != 0 {
            let why = format!("version {} of a part, flags {}", number(8, 2), number(10, 2));
            return Some(Err(why));
        }
        let (total, at) = (number(16, 8), number(24, 8));
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= total);
        if bytes.is_empty() || end.is_none() || isize::try_from(total).is_err() {
            return Some(Err(format!("{} bytes at {at} of a message of {total}", bytes.len())));
        }
        let part = Self { serial: number(12, 4) as u32, total: total as usize, at: at as usize };
        Some(Ok((part, bytes)))
    }
}

/// What a receiver has of the long messages of one sender.
#[derive(Default)]
pub struct Long {
    now: Option<Assembly>,
    /// The one whose parts are passed over.
    refused: Option<u32>,
}

struct Assembly {
    serial: u32,
    /// The message lies in it behind as many bytes as before one in a ring, so that what is aligned there is here.
    room: Room,
    total: usize,
    filled: usize,
}

/// What is wrong with a part, which was passed over.
pub enum Refused {
    /// The message is larger than the memory that is left.
    TooLarge(String),
    Corrupt(String),
}

impl Long {
    /// Takes the bytes of a part. `None` if the message is none.
    pub fn take(&mut self, message: &[u8], pool: &Pool) -> Option<Result<(), Refused>> {
        Some(match Part::read(message)? {
            Ok((part, bytes)) => self.add(part, bytes, pool),
            Err(why) => Err(Refused::Corrupt(why)),
        })
    }

    fn add(&mut self, part: Part, bytes: &[u8], pool: &Pool) -> Result<(), Refused> {
        if part.at == 0 {
            // One that was begun before was given up by its sender.
            self.now = None;
            self.refused = None;
            let left = thalweg_sys::host::memory_available();
            let fits = left.is_none_or(|left| part.total as u64 <= left);
            let Some(room) = fits.then(|| pool.room(BEFORE + part.total)).flatten() else {
                self.refused = Some(part.serial);
                let why = format!("a message of {} bytes: more than the memory left", part.total);
                return Err(Refused::TooLarge(why));
            };
            self.now = Some(Assembly { serial: part.serial, room, total: part.total, filled: 0 });
        }
        let due = self.now.as_mut().filter(|now| {
            (now.serial, now.total, now.filled) == (part.serial, part.total, part.at)
        });
        match due {
            Some(now) => {
                let from = BEFORE + part.at;
                now.room.bytes(from + bytes.len())[from..].copy_from_slice(bytes);
                now.filled += bytes.len();
                Ok(())
            }
            None if self.refused == Some(part.serial) => Ok(()),
            None => {
                self.now = None;
                let Part { serial, at, .. } = part;
                Err(Refused::Corrupt(format!(
                    "a part of message {serial}, at {at}, which is not due"
                )))
            }
        }
    }

    /// Whether a message is all there.
    pub fn is_whole(&self) -> bool {
        self.now.as_ref().is_some_and(|now| now.filled == now.total)
    }

    /// The bytes of the message that is there.
    pub fn message(&mut self) -> &[u8] {
        self.now.as_mut().map_or(&[], |now| &now.room.bytes(BEFORE + now.total)[BEFORE..])
    }

    /// Lets go of it: its memory, in which it begins after [`BEFORE`] bytes.
    pub fn finish(&mut self) -> Option<Room> {
        self.now.take().map(|now| now.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(serial: u32, total: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
        [&Part { serial, total, at }.head()[..], bytes].concat()
    }

    fn taken(long: &mut Long, message: &[u8]) -> Option<bool> {
        long.take(message, &Pool::default()).map(|taken| taken.is_ok())
    }

    #[test]
    fn parts_make_a_message_and_another_begins_anew() {
        let mut long = Long::default();
        assert_eq!(taken(&mut long, b"THALWEGA and the rest of some other message"), None);
        assert_eq!(taken(&mut long, &message(1, 5, 0, b"ab")), Some(true));
        assert!(!long.is_whole());
        assert_eq!(taken(&mut long, &message(2, 4, 0, b"xyz")), Some(true));
        assert_eq!(taken(&mut long, &message(2, 4, 3, b"!")), Some(true));
        assert!(long.is_whole());
        assert_eq!(long.message(), b"xyz!");
        assert!(long.finish().is_some() && !long.is_whole() && long.finish().is_none());
    }

    #[test]
    fn what_cannot_be_is_passed_over() {
        let mut long = Long::default();
        let mut other_version = message(1, 5, 0, b"ab");
        other_version[8] = 2;
        for lie in [
            other_version,
            message(1, 5, 0, b""),
            message(1, 5, 4, b"ab"),
            message(1, 5, usize::MAX, b"ab"),
            message(1, usize::MAX, 0, b"ab"),
            message(1, isize::MAX as usize, 0, b"ab"),
            message(1, 5, 2, b"ab"),
        ] {
            assert_eq!(taken(&mut long, &lie), Some(false));
            assert!(!long.is_whole());
        }
        assert_eq!(taken(&mut long, &message(1, isize::MAX as usize, 2, b"ab")), Some(false));
        assert_eq!(taken(&mut long, &message(3, 5, 0, b"ab")), Some(true));
        assert_eq!(taken(&mut long, &message(3, 5, 3, b"de")), Some(false));
        assert_eq!(taken(&mut long, &message(3, 5, 2, b"cde")), Some(false));
    }
}
