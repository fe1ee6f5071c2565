//! The header of an object's message, as specified in docs/reference/formats.md: a pickle, and its out-of-band buffers. Data
//! from a peer is validated before use.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;

use crate::error::PyFailure;
use crate::header::{ALIGN, BEFORE};
use crate::memory::HeldBuffer;

pub const MAGIC: [u8; 8] = *b"THALWEGO";
const VERSION: u16 = 1;
const FIXED: usize = 24;

/// Ranges of the parts of an object in its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectParts {
    pub pickle: Range<usize>,
    pub buffers: Vec<Range<usize>>,
}

impl ObjectParts {
    /// Computes the ranges for a pickle and buffers of these lengths; `None` if no message could hold them.
    pub fn new(pickle: usize, lengths: impl ExactSizeIterator<Item = usize>) -> Option<Self> {
        u32::try_from(lengths.len()).ok()?;
        let start = FIXED.checked_add(lengths.len().checked_mul(8)?)?;
        let mut end = start.checked_add(pickle)?;
        let pickle = start..end;
        let buffers = lengths.map(|length| {
            let start = end.checked_add(BEFORE)?.checked_next_multiple_of(ALIGN)? - BEFORE;
            end = start.checked_add(length)?;
            Some(start..end)
        });
        let buffers = buffers.collect::<Option<Vec<_>>>()?;
        isize::try_from(end).ok()?;
        Some(Self { pickle, buffers })
    }

    /// Returns the size of the whole message in bytes.
    pub fn message(&self) -> usize {
        self.buffers.last().unwrap_or(&self.pickle).end
    }

    /// Returns the ranges of the pickle and of the buffers: the first byte, and the byte after the last.
    pub fn ranges(&self) -> Vec<(usize, usize)> {
        let parts = std::iter::once(&self.pickle).chain(&self.buffers);
        parts.map(|part| (part.start, part.end)).collect()
    }

    /// Returns the header before the pickle.
    pub fn head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.pickle.start);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[0, 0]);
        head.extend_from_slice(&(self.buffers.len() as u32).to_le_bytes());
        head.extend_from_slice(&(self.pickle.len() as u64).to_le_bytes());
        for buffer in &self.buffers {
            head.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
        }
        head
    }

    /// Writes the whole message; `message` must have the size [`ObjectParts::message`].
    pub fn write(&self, message: &mut [u8], pickle: &[u8], buffers: &[HeldBuffer]) {
        message[..self.pickle.start].copy_from_slice(&self.head());
        message[self.pickle.clone()].copy_from_slice(pickle);
        let mut end = self.pickle.end;
        for (part, buffer) in self.buffers.iter().zip(buffers) {
            // Clears the gap, so that the peer does not see earlier contents of the memory.
            message[end..part.start].fill(0);
            buffer.copy_to(&mut message[part.clone()]);
            end = part.end;
        }
    }

    /// Parses and validates the header of a message of `total` bytes that begins with `front`. Each byte is read
    /// once. The error is the reason why it is invalid.
    pub fn read(front: &[u8], total: usize) -> Result<Self, String> {
        let fixed =
            *front.first_chunk::<FIXED>().ok_or("message shorter than the header of an object")?;
        let number = |at: usize, bytes: usize| {
            fixed[at..at + bytes].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        if fixed[..8] != MAGIC {
            return Err("the message is not an object: does not begin with THALWEGO".to_owned());
        }
        if number(8, 2) != u64::from(VERSION) || number(10, 2) != 0 {
            return Err(format!(
                "unsupported object header: version {}, flags {}",
                number(8, 2),
                number(10, 2)
            ));
        }
        let (count, pickle) = (number(12, 4), number(16, 8));
        let table = front.get(FIXED..FIXED + 8 * count as usize);
        let table = table.ok_or("the table of lengths is longer than the message")?;
        let lengths: Vec<u64> =
            table.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let lengths = lengths.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX));
        let parts = Self::new(usize::try_from(pickle).unwrap_or(usize::MAX), lengths);
        let parts = parts.ok_or("the parts of the object exceed the address space")?;
        if parts.message() != total {
            return Err(format!(
                "the parts of the object have {} bytes, but the message has {total}",
                parts.message()
            ));
        }
        Ok(parts)
    }
}

/// A pickled object, ready to be sent.
pub struct Pickled {
    pickle: Py<PyBytes>,
    buffers: Vec<HeldBuffer>,
    parts: ObjectParts,
}

impl Pickled {
    /// Pickles an object with `thalweg._objects.parted`, or takes its cached parts.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let parted = py.import("thalweg._objects")?.getattr("parted")?.call1((object,))?;
        let (pickle, buffers): (Bound<'_, PyBytes>, Vec<Bound<'_, PyAny>>) = parted.extract()?;
        let buffers = buffers.iter().map(|buffer| HeldBuffer::get(buffer, false));
        let buffers = buffers.collect::<PyResult<Vec<_>>>()?;
        let parts =
            ObjectParts::new(pickle.as_bytes().len(), buffers.iter().map(HeldBuffer::bytes));
        let parts = parts.ok_or_else(|| too_large(py))?;
        Ok(Self { pickle: pickle.unbind(), buffers, parts })
    }

    pub fn message(&self) -> usize {
        self.parts.message()
    }

    /// Returns the bytes of the pickle, which stay valid without the interpreter lock.
    pub fn pickle<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.pickle.bind(py).as_bytes()
    }

    /// Writes the object into its message.
    pub fn write(&self, message: &mut [u8], pickle: &[u8]) {
        self.parts.write(message, pickle, &self.buffers);
    }
}

/// Returns the header of a message that consists of a pickle and of buffers with these lengths.
#[pyfunction]
pub fn object_head(py: Python<'_>, pickle: usize, lengths: Vec<usize>) -> PyResult<Py<PyBytes>> {
    let parts = ObjectParts::new(pickle, lengths.into_iter());
    let parts = parts.ok_or_else(|| too_large(py))?;
    Ok(PyBytes::new(py, &parts.head()).unbind())
}

/// Returns the byte ranges of the pickle and the buffers in a message of `total` bytes that begins with `front`. Each range
/// consists of its first byte and the byte after its last. Raises Corrupt if the header is invalid.
#[pyfunction]
pub fn object_parts(py: Python<'_>, front: &[u8], total: usize) -> PyResult<Vec<(usize, usize)>> {
    let parts = ObjectParts::read(front, total);
    Ok(parts.map_err(|why| PyFailure::new("Corrupt", why).raised(py))?.ranges())
}

fn too_large(py: Python<'_>) -> PyErr {
    PyFailure::new("TooLarge", "the object has more bytes or buffers than fit into a message")
        .raised(py)
}
