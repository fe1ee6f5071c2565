//! What follows a head: bytes and stretches of files, known at once or made piece by piece.

use std::{collections::VecDeque, fmt, sync::Arc};

use thalweg_sys::Errno;

use super::{opened::Opened, tasks::Lane};
use crate::http::range::Stretch;

/// A piece of a body.
#[derive(Debug)]
pub enum Part {
    /// These.
    Bytes(Vec<u8>),
    /// A stretch of a file, as it was when it was opened.
    File(Arc<Opened>, Stretch),
}

impl Part {
    /// How long it is.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, stretch) => stretch.len(),
        }
    }
}

/// The most entries of a directory that a supply looks at in a turn.
pub const TURN_ENTRIES: usize = 256;
/// A supply ends its turn as soon as it has made this many bytes: a client that reads nothing holds hardly more.
pub const TURN_BYTES: usize = 16 << 10;

/// Makes a body piece by piece. Helpers call it, so that no worker waits for a directory.
pub trait Supply: Send {
    /// Makes the next piece. An error ends the answer short.
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<Piece, String>;

    /// Where helpers make the next piece.
    fn lane(&self) -> Lane;

    /// `true` if the next piece is short work that no disk delays: a worker makes it itself.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Memory that it keeps between two pieces, in bytes.
    fn held(&self) -> u64 {
        0
    }
}

/// What a supply may do in a turn.
pub struct SupplyTurn<'t> {
    /// It may read a large directory.
    pub may_sort: bool,
    /// An error: the client is gone, or the server ends.
    pub go_on: &'t dyn Fn() -> Result<(), Errno>,
}

/// A piece of a body; one without parts only ends a turn.
#[derive(Debug, Default)]
pub struct Piece {
    pub parts: Vec<Part>,
    /// Nothing follows.
    pub is_last: bool,
}

/// A body.
#[derive(Default)]
pub struct Body {
    pub parts: VecDeque<Part>,
    supply: Option<Box<dyn Supply>>,
    in_chunks: bool,
    is_made: bool,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Body {
    /// Of parts that are there.
    pub fn of(parts: impl Into<VecDeque<Part>>) -> Self {
        Self { parts: parts.into(), ..Self::default() }
    }

    /// Of parts that a supply makes; in chunks, if the client knows them.
    pub fn made_by(supply: Box<dyn Supply>, in_chunks: bool) -> Self {
        Self { supply: Some(supply), in_chunks, is_made: true, ..Self::default() }
    }

    /// Bytes of the parts that are there.
    pub fn len(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// `true` if a supply makes or made it: it cannot be made a second time from the byte reached.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// `true` if the next part has to be made.
    pub fn needs_more(&self) -> bool {
        self.parts.is_empty() && self.supply.is_some()
    }

    /// Makes the next piece at once, if that is short work. Returns whether it did.
    pub fn make_at_hand(&mut self) -> Result<bool, String> {
        let Some(mut supply) = self.supply.take_if(|supply| supply.is_at_hand()) else {
            return Ok(false);
        };
        let piece = supply.next(&SupplyTurn { may_sort: false, go_on: &|| Ok(()) })?;
        self.add(supply, piece);
        Ok(true)
    }

    /// The supply, to have the next piece made elsewhere.
    pub fn take_supply(&mut self) -> Option<Box<dyn Supply>> {
        self.supply.take()
    }

    /// Adds a piece and takes its supply back.
    pub fn add(&mut self, supply: Box<dyn Supply>, piece: Piece) {
        let Piece { parts, is_last } = piece;
        let len: u64 = parts.iter().map(Part::len).sum();
        let is_chunk = self.in_chunks && len > 0;
        if is_chunk {
            self.parts.push_back(Part::Bytes(format!("{len:x}\r\n").into_bytes()));
        }
        self.parts.extend(parts.into_iter().filter(|part| part.len() > 0));
        if is_chunk {
            self.parts.push_back(Part::Bytes(b"\r\n".to_vec()));
        }
        if !is_last {
            self.supply = Some(supply);
        } else if self.in_chunks {
            self.parts.push_back(Part::Bytes(b"0\r\n\r\n".to_vec()));
        }
    }

    /// Memory of the bytes that wait to be sent and of the supply.
    pub fn held(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match part {
            Part::Bytes(bytes) => bytes.capacity() as u64,
            Part::File(..) => 0,
        });
        bytes.sum::<u64>() + self.supply.as_ref().map_or(0, |supply| supply.held())
    }
}
