//! Messages that are larger than their ring. They are sent in parts, as specified in docs/reference/formats.md, and reassembled
//! in the receiver's own memory. Data from a peer is validated before use.

use crate::header::{BEFORE, Layout};
use crate::memory::{HeldBuffer, PooledRoom, RoomPool};

pub const MAGIC: [u8; 8] = *b"THALWEGL";
const VERSION: u16 = 1;

/// Position of a part in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePart {
    /// Serial number of the long message, per sender.
    pub serial: u32,
    /// Size of the whole message in bytes.
    pub total: usize,
    /// Offset of the part in the message.
    pub at: usize,
}

impl MessagePart {
    /// Size of the header before the part's bytes.
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

    /// Parses a part; `None` if the message is not a part. Each byte of the header is read once.
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
            let why = format!(
                "unsupported part of a long message: version {}, flags {}",
                number(8, 2),
                number(10, 2)
            );
            return Some(Err(why));
        }
        let (total, at) = (number(16, 8), number(24, 8));
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= total);
        if bytes.is_empty() || end.is_none() || isize::try_from(total).is_err() {
            return Some(Err(format!(
                "invalid part of a long message: {} bytes at {at} of {total}",
                bytes.len()
            )));
        }
        let part = Self { serial: number(12, 4) as u32, total: total as usize, at: at as usize };
        Some(Ok((part, bytes)))
    }
}

/// State of the long messages of one sender.
#[derive(Default)]
pub struct Long {
    now: Option<Assembly>,
    /// Serial number of a rejected message. All its parts are skipped.
    refused: Option<u32>,
}

struct Assembly {
    serial: u32,
    place: AssemblyPlace,
    total: usize,
    filled: usize,
}

/// Memory in which a message is reassembled.
enum AssemblyPlace {
    /// The message starts at offset [`BEFORE`], as in a ring, so that its elements have the same alignment.
    Room(PooledRoom),
    /// The elements are in the caller's array. This vector contains the header before them.
    Array(Vec<u8>),
}

/// An array of the caller that receives the elements of a message directly, if they fit.
pub struct ArrayTarget<'a> {
    pub given: &'a HeldBuffer,
    pub layout: &'a Layout,
}

impl ArrayTarget<'_> {
    /// Returns the header size of a message of `total` bytes that begins with `front`; `None` if the message does not
    /// fit.
    fn fits(&self, front: &[u8], total: usize) -> Option<usize> {
        let layout = Layout::read_front(front, total).ok().filter(|it| self.layout.holds(it))?;
        (self.given.is_flat() && front.len() >= layout.offset()).then(|| layout.offset())
    }
}

/// The reason why a part was skipped.
pub enum Refused {
    /// The message is larger than the available memory.
    TooLarge(String),
    Corrupt(String),
}

impl Long {
    /// Takes the bytes of a part, into the target if the whole message fits there. Returns `None` if the message is not a part.
    pub fn take(
        &mut self,
        message: &[u8],
        pool: &RoomPool,
        target: Option<&ArrayTarget<'_>>,
    ) -> Option<Result<(), Refused>> {
        Some(match MessagePart::read(message)? {
            Ok((part, bytes)) => self.add(part, bytes, pool, target),
            Err(why) => Err(Refused::Corrupt(why)),
        })
    }

    fn add(
        &mut self,
        part: MessagePart,
        bytes: &[u8],
        pool: &RoomPool,
        target: Option<&ArrayTarget<'_>>,
    ) -> Result<(), Refused> {
        if part.at == 0 {
            // The sender has given up an earlier, incomplete message.
            self.now = None;
            self.refused = None;
            let place = match target.and_then(|target| target.fits(bytes, part.total)) {
                Some(offset) => AssemblyPlace::Array(bytes[..offset].to_vec()),
                None => AssemblyPlace::Room(self.room(part.serial, part.total, pool)?),
            };
            self.now = Some(Assembly { serial: part.serial, place, total: part.total, filled: 0 });
        }
        let due = self.now.as_mut().filter(|now| {
            (now.serial, now.total, now.filled) == (part.serial, part.total, part.at)
        });
        match due {
            Some(now) => {
                now.put(bytes, target);
                Ok(())
            }
            None if self.refused == Some(part.serial) => Ok(()),
            None => {
                self.now = None;
                let MessagePart { serial, at, .. } = part;
                Err(Refused::Corrupt(format!(
                    "unexpected part of the long message {serial}, at byte {at}"
                )))
            }
        }
    }

    /// Allocates memory for a message. If that fails, records the message, so that all its parts are skipped.
    fn room(&mut self, serial: u32, total: usize, pool: &RoomPool) -> Result<PooledRoom, Refused> {
        let left = thalweg_sys::host::memory_available();
        let fits = left.is_none_or(|left| total as u64 <= left);
        fits.then(|| pool.room(BEFORE + total)).flatten().ok_or_else(|| {
            self.refused = Some(serial);
            let why = format!("message of {total} bytes exceeds the available memory");
            Refused::TooLarge(why)
        })
    }

    /// Returns `true` if a message is complete.
    pub fn is_whole(&self) -> bool {
        self.now.as_ref().is_some_and(|now| now.filled == now.total)
    }

    /// Returns `true` if the message's elements are in the caller's array.
    pub fn is_in_array(&self) -> bool {
        self.now.as_ref().is_some_and(|now| matches!(now.place, AssemblyPlace::Array(_)))
    }

    /// Returns the bytes of the complete message. The result is empty if they are in the caller's array.
    pub fn message(&mut self) -> &[u8] {
        match &mut self.now {
            Some(Assembly { place: AssemblyPlace::Room(room), total, .. }) => {
                &room.bytes(BEFORE + *total)[BEFORE..]
            }
            _ => &[],
        }
    }

    /// Returns the memory that holds the message, from offset [`BEFORE`] on. `None` if the message is in the caller's array,
    /// or if none is in progress. Afterwards, no message is in progress.
    pub fn finish(&mut self) -> Option<PooledRoom> {
        match self.now.take()?.place {
            AssemblyPlace::Room(room) => Some(room),
            AssemblyPlace::Array(_) => None,
        }
    }

    /// Moves the received bytes of a message out of the caller's array, which then belongs to the caller again.
    pub fn leave_array(&mut self, given: &HeldBuffer, pool: &RoomPool) -> Result<(), Refused> {
        let Some(now) = self.now.take_if(|now| matches!(now.place, AssemblyPlace::Array(_))) else {
            return Ok(());
        };
        let Assembly { serial, place, total, filled } = now;
        let AssemblyPlace::Array(head) = place else { return Ok(()) };
        let mut room = self.room(serial, total, pool)?;
        let (front, elements) =
            room.bytes(BEFORE + filled)[BEFORE..].split_at_mut(head.len().min(filled));
        front.copy_from_slice(&head[..front.len()]);
        given.copy_part_to(0, elements);
        self.now = Some(Assembly { serial, place: AssemblyPlace::Room(room), total, filled });
        Ok(())
    }
}

impl Assembly {
    /// Stores the next bytes.
    fn put(&mut self, bytes: &[u8], target: Option<&ArrayTarget<'_>>) {
        match (&mut self.place, target) {
            (AssemblyPlace::Room(room), _) => {
                let from = BEFORE + self.filled;
                room.bytes(from + bytes.len())[from..].copy_from_slice(bytes);
            }
            (AssemblyPlace::Array(head), Some(target)) => {
                let skip = head.len().saturating_sub(self.filled).min(bytes.len());
                let at = (self.filled + skip).saturating_sub(head.len());
                target.given.copy_part_from(at, &bytes[skip..]);
            }
            // The call that supplied the array has ended, so the elements have no place.
            (AssemblyPlace::Array(_), None) => {}
        }
        self.filled += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(serial: u32, total: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
        [&MessagePart { serial, total, at }.head()[..], bytes].concat()
    }

    fn taken(long: &mut Long, message: &[u8]) -> Option<bool> {
        long.take(message, &RoomPool::default(), None).map(|taken| taken.is_ok())
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
