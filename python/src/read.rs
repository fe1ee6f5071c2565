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

    /// An array; or what is wrong with it, and it is left.
    pub fn array(&self, come: Come<'_, impl Piece>) -> Result<Message, String> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let layout = Layout::read(long.message())?;
                let skip = BEFORE + layout.offset();
                let room = long.finish().ok_or("no message")?;
                return Ok(Message::own(layout, room, (skip, self.copies)));
            }
        };
        let layout = match Layout::read(&piece) {
            Ok(layout) => layout,
            Err(why) => {
                piece.leave();
                return Err(why);
            }
        };
        if self.trusted && self.stays(&piece) {
            let skip = layout.offset();
            return Ok(Message::held(layout, piece.hold(), skip));
        }
        let elements = piece.get(layout.offset()..).unwrap_or_default();
        let mut room = self.pool.room(elements.len());
        room.bytes(elements.len()).copy_from_slice(elements);
        Ok(Message::own(layout, room, (0, self.copies)))
    }

    /// The bytes of an object's message, and where its parts lie; or what is wrong with it, and it is left.
    pub fn object(&self, come: Come<'_, impl Piece>) -> Result<(Message, Parts), String> {
        let piece = match come {
            Come::InRing(piece) => piece,
            Come::InParts(long) => {
                let (layout, parts) = parted(long.message())?;
                let room = long.finish().ok_or("no message")?;
                return Ok((Message::own(layout, room, (BEFORE, self.copies)), parts));
            }
        };
        let (layout, parts) = match parted(&piece) {
            Ok(found) => found,
            Err(why) => {
                piece.leave();
                return Err(why);
            }
        };
        // What has no buffers is copied by being unpickled.
        if parts.buffers.is_empty() || self.stays(&piece) {
            return Ok((Message::held(layout, piece.hold(), 0), parts));
        }
        // So that its buffers lie at multiples of 64.
        let len = piece.len();
        let mut room = self.pool.room(BEFORE + len);
        room.bytes(BEFORE + len)[BEFORE..].copy_from_slice(&piece);
        Ok((Message::own(layout, room, (BEFORE, self.copies)), parts))
    }

    /// A copy of its bytes, behind as many others in the room, and how many they are.
    pub fn bytes(&self, come: Come<'_, impl Piece>) -> (Room, usize, usize) {
        match come {
            Come::InRing(piece) => {
                let mut room = self.pool.room(piece.len());
                room.bytes(piece.len()).copy_from_slice(&piece);
                (room, 0, piece.len())
            }
            Come::InParts(long) => {
                let len = long.message().len();
                (long.finish().unwrap_or_else(|| self.pool.room(BEFORE)), BEFORE, len)
            }
        }
    }
}

/// Of an object's message: its bytes as they are, and where its parts lie.
fn parted(message: &[u8]) -> Result<(Layout, Parts), String> {
    let parts = Parts::read(message, message.len())?;
    let layout = Layout::of_bytes(message.len()).ok_or("more bytes than there can be")?;
    Ok((layout, parts))
}
