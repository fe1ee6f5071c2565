//! What becomes of a message that has come: it stays where it lies, or is copied to own memory, or is left for another
//! call. One that came in parts lies in own memory already.

use std::mem;
use std::ops::Deref;
use thalweg_channel::{Held, Sample};

use crate::header::{BEFORE, Layout};
use crate::long::Long;
use crate::memory::{Message, Pool, Room};
use crate::object::Parts;

/// A message that was received, and can be kept.
pub trait Piece: Deref<Target = [u8]> + Sized {
    /// The largest message that its ring can hold.
    fn largest(&self) -> usize;
    fn hold(self) -> Held;
    /// It stays the next one.
    fn leave(self) {
        mem::forget(self);
    }
}

impl Piece for Sample<'_> {
    fn largest(&self) -> usize {
        Sample::largest(self)
    }

    fn hold(self) -> Held {
        Sample::hold(self)
    }
}

/// Where a message is that has come.
pub enum Come<'l, P> {
    InRing(P),
    /// It is whole.
    InParts(&'l mut Long),
}

/// Why a message was left: it stays the next one.
pub enum Unread {
    /// It is of another kind, or lies.
    Corrupt(String),
    /// There is no memory for so many bytes.
    NoMemory(usize),
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self::Corrupt(why)
    }
}

/// How messages are read.
#[derive(Clone)]
pub struct Reading {
    pub pool: Pool,
    copies: bool,
    pub trusted: bool,
}

impl Reading {
    pub fn new(copies: bool, trusted: bool) -> Self {
        Self { pool: Pool::default(), copies, trusted }
    }

    /// Whether it may stay in its ring. Of one that fills more than half of that the next could not come while a loop
    /// still holds it.
    fn stays(&self, piece: &impl Piece) -> bool {
        !self.copies && piece.len() < piece.largest() / 2
    }

    /// An array; or why it is left.
    pub fn array(&self, come: Come<'_, impl Piece>) -> Result<Message, Unread> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let layout = Layout::read(long.message())?;
                let skip = BEFORE + layout.offset();
                let room = long.finish().ok_or(Unread::NoMemory(0))?;
                return Ok(Message::own(layout, room, (skip, self.copies)));
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
            return Ok(Message::held(layout, piece.hold(), skip));
        }
        let room = self.copy(piece, layout.offset(), 0)?.1;
        Ok(Message::own(layout, room, (0, self.copies)))
    }

    /// The bytes of an object's message, and where its parts lie; or why it is left.
    pub fn object(&self, come: Come<'_, impl Piece>) -> Result<(Message, Parts), Unread> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let (layout, parts) = parted(long.message())?;
                let room = long.finish().ok_or(Unread::NoMemory(0))?;
                return Ok((Message::own(layout, room, (BEFORE, self.copies)), parts));
            }
        };
        let (layout, parts) = match parted(&piece) {
            Ok(found) => found,
            Err(why) => {
                piece.leave();
                return Err(why.into());
            }
        };
        // What has no buffers is copied by being unpickled.
        if parts.buffers.is_empty() || self.stays(&piece) {
            return Ok((Message::held(layout, piece.hold(), 0), parts));
        }
        // So that its buffers lie at multiples of 64.
        let room = self.copy(piece, 0, BEFORE)?.1;
        Ok((Message::own(layout, room, (BEFORE, self.copies)), parts))
    }

    /// A copy of its bytes, behind as many others in the room, and how many they are.
    pub fn bytes(&self, come: Come<'_, impl Piece>) -> Result<(Room, usize, usize), Unread> {
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

    /// Copies a message without its first `skip` bytes behind the first `to` bytes of a room. Without memory it is left.
    fn copy<P: Piece>(&self, piece: P, skip: usize, to: usize) -> Result<(P, Room), Unread> {
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

/// Of an object's message: its bytes as they are, and where its parts lie.
fn parted(message: &[u8]) -> Result<(Layout, Parts), String> {
    let parts = Parts::read(message, message.len())?;
    let layout = Layout::of_bytes(message.len()).ok_or("more bytes than there can be")?;
    Ok((layout, parts))
}
