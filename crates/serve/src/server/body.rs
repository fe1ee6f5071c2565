//! Body of an answer: bytes and file ranges, known in advance or produced piece by piece. A turn is one call of
//! [`Supply::next`], which produces one piece.

use std::{collections::VecDeque, fmt, sync::Arc};

use thalweg_sys::Errno;

use super::{opened::ServedFile, tasks::HelperLane};
use crate::http::range::ByteRange;

/// A part of a body.
#[derive(Debug)]
pub enum BodyPart {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A range of a file, in the version that was opened.
    File(Arc<ServedFile>, ByteRange),
}

impl BodyPart {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, stretch) => stretch.len(),
        }
    }
}

/// Maximum number of directory entries that a supply examines in one turn.
pub const TURN_ENTRIES: usize = 256;
/// A supply ends its turn as soon as it has produced this many bytes. This bounds the memory for a client that reads
/// nothing.
pub const TURN_BYTES: usize = 16 << 10;

/// Produces a body piece by piece. Helper threads call it, so that no worker waits for a directory.
pub trait Supply: Send {
    /// Produces the next piece. An error ends the answer before its last byte.
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String>;

    /// Returns the lane (a class of helper tasks) in which the next piece is produced.
    fn lane(&self) -> HelperLane;

    /// Returns `true` if the next piece is short work without disk access, so that a worker produces it directly.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Returns the memory, in bytes, that the supply keeps between two pieces.
    fn held(&self) -> u64 {
        0
    }
}

/// Permissions of a supply during one turn.
pub struct SupplyTurn<'t> {
    /// `true` if the supply may read and sort a large directory.
    pub may_sort: bool,
    /// Returns an error if the client has disconnected or the server is shutting down.
    pub check_cancelled: &'t (dyn Fn() -> Result<(), Errno> + Sync),
}

/// A piece of a body. A piece without parts only ends a turn.
#[derive(Debug, Default)]
pub struct BodyPiece {
    pub parts: Vec<BodyPart>,
    /// `true` if this is the last piece.
    pub is_last: bool,
}

/// The body of an answer.
#[derive(Default)]
pub struct AnswerBody {
    pub parts: VecDeque<BodyPart>,
    supply: Option<Box<dyn Supply>>,
    in_chunks: bool,
    is_made: bool,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl AnswerBody {
    /// Creates a body of existing parts.
    pub fn of(parts: impl Into<VecDeque<BodyPart>>) -> Self {
        Self { parts: parts.into(), ..Self::default() }
    }

    /// Creates a body that a supply produces. `in_chunks`: use the chunked transfer coding.
    pub fn made_by(supply: Box<dyn Supply>, in_chunks: bool) -> Self {
        Self { supply: Some(supply), in_chunks, is_made: true, ..Self::default() }
    }

    /// Returns the total length, in bytes, of the parts produced until now.
    pub fn len(&self) -> u64 {
        self.parts.iter().map(BodyPart::len).sum()
    }

    /// Returns `true` if a supply produces or produced the body. Such a body cannot be produced again from a given
    /// offset.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// Returns `true` if no part remains.
    pub fn is_sent(&self) -> bool {
        self.parts.is_empty() && self.supply.is_none()
    }

    /// Returns `true` if the next part has not been produced yet.
    pub fn needs_more(&self) -> bool {
        self.parts.is_empty() && self.supply.is_some()
    }

    /// Produces the next piece immediately if that is short work. Returns `true` if it has produced one.
    pub fn make_at_hand(&mut self) -> Result<bool, String> {
        let Some(mut supply) = self.supply.take_if(|supply| supply.is_at_hand()) else {
            return Ok(false);
        };
        let piece = supply.next(&SupplyTurn { may_sort: false, check_cancelled: &|| Ok(()) })?;
        self.add(supply, piece);
        Ok(true)
    }

    /// Takes the supply out, so that a helper can produce the next piece.
    pub fn take_supply(&mut self) -> Option<Box<dyn Supply>> {
        self.supply.take()
    }

    /// Appends a piece and puts its supply back.
    pub fn add(&mut self, supply: Box<dyn Supply>, piece: BodyPiece) {
        let BodyPiece { parts, is_last } = piece;
        let len: u64 = parts.iter().map(BodyPart::len).sum();
        let is_chunk = self.in_chunks && len > 0;
        if is_chunk {
            self.parts.push_back(BodyPart::Bytes(format!("{len:x}\r\n").into_bytes()));
        }
        self.parts.extend(parts.into_iter().filter(|part| part.len() > 0));
        if is_chunk {
            self.parts.push_back(BodyPart::Bytes(b"\r\n".to_vec()));
        }
        if !is_last {
            self.supply = Some(supply);
        } else if self.in_chunks {
            self.parts.push_back(BodyPart::Bytes(b"0\r\n\r\n".to_vec()));
        }
    }

    /// Returns the memory, in bytes, of the unsent parts and of the supply.
    pub fn held(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match part {
            BodyPart::Bytes(bytes) => bytes.capacity() as u64,
            BodyPart::File(..) => 0,
        });
        bytes.sum::<u64>() + self.supply.as_ref().map_or(0, |supply| supply.held())
    }
}
