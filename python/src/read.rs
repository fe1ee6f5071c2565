//! Reads a received message. The message stays in the ring, is copied to private memory, or is left for another call. A
//! message in parts is already in private memory.

use std::mem;
use std::ops::Deref;
use thalweg_channel::{Held, Sample};

use crate::header::{BEFORE, Layout};
use crate::long::Long;
use crate::memory::{PooledRoom, PyMessage, RoomPool};
use crate::object::ObjectParts;

/// A received message that can be kept.
pub trait ReceivedPiece: Deref<Target = [u8]> + Sized {
    /// Returns the size of the largest message that the ring can hold.
    fn largest(&self) -> usize;
    fn hold(self) -> Held;
    /// Leaves the message, so that it is received again.
    fn leave(self) {
        mem::forget(self);
    }
}

impl ReceivedPiece for Sample<'_> {
    fn largest(&self) -> usize {
        Sample::largest(self)
    }

    fn hold(self) -> Held {
        Sample::hold(self)
    }
}

/// Location of a received message.
pub enum Come<'l, P> {
    InRing(P),
    /// The message is complete, and was reassembled from its parts.
    InParts(&'l mut Long),
}

/// The reason why a message was left to be received again.
pub enum Unread {
    /// It has another type, or is invalid.
    Corrupt(String),
    /// Memory for this many bytes could not be allocated.
    NoMemory(usize),
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self::Corrupt(why)
    }
}

/// Settings for reading messages.
#[derive(Clone)]
pub struct ReadSettings {
    pub pool: RoomPool,
    copies: bool,
    pub trusted: bool,
}

impl ReadSettings {
    pub fn new(copies: bool, trusted: bool) -> Self {
        Self { pool: RoomPool::default(), copies, trusted }
    }

    /// Returns `true` if the message may stay in the ring. A message of half the largest size or more is copied.
    /// Otherwise the next message might not fit into the ring while a loop still holds this one.
    fn stays(&self, piece: &impl ReceivedPiece) -> bool {
        !self.copies && piece.len() < piece.largest() / 2
    }

    /// Reads an array, or returns the reason why it was left.
    pub fn array(&self, come: Come<'_, impl ReceivedPiece>) -> Result<PyMessage, Unread> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let layout = Layout::read(long.message())?;
                let skip = BEFORE + layout.offset();
                let room = long.finish().ok_or(Unread::NoMemory(0))?;
                return Ok(PyMessage::own(layout, room, skip, self.copies));
            }
        };
        let layout = match Layout::read(&piece) {
            Ok(layout) => layout,
            Err(why) => {
                piece.leave();
                return Err(why.into());
            }
        };
        if self.trusted && self.stays(&piece) {
            let skip = layout.offset();
            return Ok(PyMessage::held(layout, piece.hold(), skip));
        }
        let room = self.copy(piece, layout.offset(), 0)?.1;
        Ok(PyMessage::own(layout, room, 0, self.copies))
    }

    /// Reads the bytes of an object's message and the ranges of its parts, or returns the reason why it was left.
    pub fn object(
        &self,
        come: Come<'_, impl ReceivedPiece>,
    ) -> Result<(PyMessage, ObjectParts), Unread> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let (layout, parts) = parted(long.message())?;
                let room = long.finish().ok_or(Unread::NoMemory(0))?;
                return Ok((PyMessage::own(layout, room, BEFORE, self.copies), parts));
            }
        };
        let (layout, parts) = match parted(&piece) {
            Ok(found) => found,
            Err(why) => {
                piece.leave();
                return Err(why.into());
            }
        };
        // A message without buffers may stay in the ring: unpickling copies its contents, and its room is released
        // soon.
        if parts.buffers.is_empty() || self.stays(&piece) {
            return Ok((PyMessage::held(layout, piece.hold(), 0), parts));
        }
        // Copies the message to offset BEFORE of the room, so that the buffers are aligned to multiples of 64.
        let room = self.copy(piece, 0, BEFORE)?.1;
        Ok((PyMessage::own(layout, room, BEFORE, self.copies), parts))
    }

    /// Copies the bytes of a message. Returns the memory, the offset of the bytes in it, and their number.
    pub fn bytes(
        &self,
        come: Come<'_, impl ReceivedPiece>,
    ) -> Result<(PooledRoom, usize, usize), Unread> {
        match come {
            Come::InRing(piece) => {
                let (piece, room) = self.copy(piece, 0, 0)?;
                Ok((room, 0, piece.len()))
            }
            Come::InParts(long) => {
                let len = long.message().len();
                Ok((long.finish().ok_or(Unread::NoMemory(0))?, BEFORE, len))
            }
        }
    }

    /// Copies a message without its first `skip` bytes to offset `to` of a room. If the allocation fails, the message
    /// is left.
    fn copy<P: ReceivedPiece>(
        &self,
        piece: P,
        skip: usize,
        to: usize,
    ) -> Result<(P, PooledRoom), Unread> {
        let bytes = piece.get(skip..).unwrap_or_default();
        let len = to + bytes.len();
        let Some(mut room) = self.pool.room(len) else {
            piece.leave();
            return Err(Unread::NoMemory(len));
        };
        room.bytes(len)[to..].copy_from_slice(bytes);
        Ok((piece, room))
    }
}

/// Returns the layout of an object's message as plain bytes, and the ranges of its parts.
fn parted(message: &[u8]) -> Result<(Layout, ObjectParts), String> {
    let parts = ObjectParts::read(message, message.len())?;
    let layout = Layout::of_bytes(message.len()).ok_or("size exceeds the address space")?;
    Ok((layout, parts))
}
