//! What follows a head: bytes and stretches of files, known at once or found on the way.

use std::{collections::VecDeque, fmt, sync::Arc};

use super::opened::Opened;
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

/// Makes the parts of a body while it is sent.
pub trait Supply {
    /// The next ones; `None` at the end. What is wrong ends the answer short.
    fn next(&mut self) -> Result<Option<Vec<Part>>, String>;
}

/// A body.
#[derive(Default)]
pub struct Body {
    pub parts: VecDeque<Part>,
    supply: Option<Box<dyn Supply>>,
    in_chunks: bool,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Body {
    /// Of parts that are there.
    pub fn of(parts: impl Into<VecDeque<Part>>) -> Self {
        Self { parts: parts.into(), supply: None, in_chunks: false }
    }

    /// Of parts that are to be found; in chunks, if the client knows them.
    pub fn found(supply: Box<dyn Supply>, in_chunks: bool) -> Self {
        Self { parts: VecDeque::new(), supply: Some(supply), in_chunks }
    }

    /// Bytes of the parts that are there.
    pub fn len(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Sees that there is a part, unless it is over.
    pub fn fill(&mut self) -> Result<(), String> {
        while self.parts.is_empty() {
            let Some(supply) = &mut self.supply else { return Ok(()) };
            if let Some(parts) = supply.next()? {
                self.push(parts);
                continue;
            }
            self.supply = None;
            if self.in_chunks {
                self.parts.push_back(Part::Bytes(b"0\r\n\r\n".to_vec()));
            }
        }
        Ok(())
    }

    fn push(&mut self, parts: Vec<Part>) {
        let len: u64 = parts.iter().map(Part::len).sum();
        let is_chunk = self.in_chunks && len > 0;
        if is_chunk {
            self.parts.push_back(Part::Bytes(format!("{len:x}\r\n").into_bytes()));
        }
        self.parts.extend(parts.into_iter().filter(|part| part.len() > 0));
        if is_chunk {
            self.parts.push_back(Part::Bytes(b"\r\n".to_vec()));
        }
    }
}
