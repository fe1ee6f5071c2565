//! The header of an array's message, as specified in docs/reference/formats.md. Data from a peer is validated before use.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::CString;

pub const MAGIC: [u8; 8] = *b"THALWEGA";
const VERSION: u16 = 1;
const FIXED: usize = 32;
/// numpy's maximum number of dimensions.
const MOST_DIMENSIONS: usize = 64;
/// Alignment of the elements in bytes. Messages start 32 bytes after a multiple of this number.
pub const ALIGN: usize = 64;
pub const BEFORE: usize = 32;

/// Notation of the elements' type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A format of PEP 3118, as buffers use it.
    Buffer = 1,
    /// numpy's name of a date or time span, for which PEP 3118 has no format. An element is sent as an integer of 8
    /// bytes.
    Time = 2,
}

/// Type and shape of an array. The elements are in C order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub encoding: Encoding,
    pub format: CString,
    pub item: usize,
    pub shape: Vec<isize>,
    /// Distance in bytes from one element to the next, by dimension.
    pub strides: Vec<isize>,
    /// `true` if the sender's memory was read-only.
    pub readonly: bool,
}

impl Layout {
    /// Creates a layout; `None` if its size would overflow.
    pub fn new(
        encoding: Encoding,
        format: CString,
        item: usize,
        shape: Vec<isize>,
    ) -> Option<Self> {
        let mut strides = vec![0; shape.len()];
        let mut bytes = isize::try_from(item).ok()?;
        for (stride, length) in strides.iter_mut().zip(&shape).rev() {
            *stride = bytes;
            // Like numpy, also rejects an empty array if its other lengths overflow.
            bytes = bytes.checked_mul((*length).max(1))?;
        }
        shape.iter().all(|length| *length >= 0).then_some(())?;
        Some(Self { encoding, format, item, shape, strides, readonly: false })
    }

    /// Creates the layout of `bytes` plain bytes.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        Self::new(Encoding::Buffer, c"B".to_owned(), 1, vec![isize::try_from(bytes).ok()?])
    }

    /// Returns the type of the elements for Python: encoding, format, size of an element in bytes.
    pub fn kind(&self) -> (u8, String, usize) {
        (self.encoding as u8, self.format.to_string_lossy().into_owned(), self.item)
    }

    /// Checks the type of the elements; the error is the reason why it is invalid.
    pub fn check_type(&self) -> Result<(), &'static str> {
        checked_type(self.encoding, &self.format, self.item)
    }

    /// Returns the size of all elements in bytes.
    pub fn bytes(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().fold(self.item, |bytes, length| bytes * *length as usize)
    }

    /// Returns the NUL-terminated buffer format of an element with [`Encoding::Time`]: a 64-bit integer in the byte
    /// order of the format.
    pub fn of_buffer(&self) -> &'static [u8] {
        if self.format.as_bytes().starts_with(b">") { b">q\0" } else { b"<q\0" }
    }

    /// Returns the offset of the elements in the message.
    pub fn offset(&self) -> usize {
        let end = FIXED + 8 * self.shape.len() + self.format.as_bytes().len();
        (end + BEFORE).next_multiple_of(ALIGN) - BEFORE
    }

    /// Returns the size of the whole message in bytes; `None` if the header cannot express the layout.
    pub fn message(&self) -> Option<usize> {
        let fits = self.shape.len() <= MOST_DIMENSIONS
            && self.format.as_bytes().len() <= usize::from(u16::MAX)
            && u32::try_from(self.item).is_ok();
        self.bytes().checked_add(self.offset()).filter(|_| fits)
    }

    /// Writes the header to the start of a message, which must have room for it.
    pub fn write(&self, message: &mut [u8]) {
        let (head, _) = message.split_at_mut(self.offset());
        head.fill(0);
        let format = self.format.as_bytes();
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        head[10] = self.encoding as u8;
        head[11] = self.readonly.into();
        head[12] = self.shape.len() as u8;
        head[14..16].copy_from_slice(&(format.len() as u16).to_le_bytes());
        head[16..20].copy_from_slice(&(self.offset() as u32).to_le_bytes());
        head[20..24].copy_from_slice(&(self.item as u32).to_le_bytes());
        head[24..32].copy_from_slice(&(self.bytes() as u64).to_le_bytes());
        let mut at = FIXED;
        for length in &self.shape {
            head[at..at + 8].copy_from_slice(&(*length as u64).to_le_bytes());
            at += 8;
        }
        head[at..at + format.len()].copy_from_slice(format);
    }

    /// Parses and validates the header of a message. Each byte is read once, because the peer may be modifying them.
    /// The error is the reason why it is invalid.
    pub fn read(message: &[u8]) -> Result<Self, String> {
        Self::read_front(message, message.len())
    }

    /// Parses the header of a message of `total` bytes that begins with `front`.
    pub fn read_front(front: &[u8], total: usize) -> Result<Self, String> {
        let fixed =
            *front.first_chunk::<FIXED>().ok_or("message shorter than the header of an array")?;
        let number = |at: usize, bytes: usize| {
            fixed[at..at + bytes].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        if fixed[..8] != MAGIC {
            let object = if fixed[..8] == *b"THALWEGO" {
                "the message is an object: use receive_object"
            } else {
                "the message is not an array"
            };
            return Err(format!("{object}: does not begin with THALWEGA"));
        }
        if number(8, 2) != u64::from(VERSION) {
            return Err(format!("unsupported version {} of an array's header", number(8, 2)));
        }
        let encoding = match fixed[10] {
            1 => Encoding::Buffer,
            2 => Encoding::Time,
            other => return Err(format!("unknown encoding {other} of an element's type")),
        };
        if fixed[11] > 1 || fixed[13] != 0 {
            return Err("unknown flags in the header".to_owned());
        }
        let dimensions = usize::from(fixed[12]);
        if dimensions > MOST_DIMENSIONS {
            return Err(format!(
                "the array has {dimensions} dimensions, more than {MOST_DIMENSIONS}"
            ));
        }
        let (length, item) = (number(14, 2) as usize, number(20, 4) as usize);
        let variable = front.get(FIXED..FIXED + 8 * dimensions + length);
        let variable = variable.ok_or("header longer than the message")?.to_vec();
        let (lengths, format) = variable.split_at(8 * dimensions);
        let lengths = lengths.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let shape: Option<Vec<isize>> = lengths.map(|n| isize::try_from(n).ok()).collect();
        let format = CString::new(format).map_err(|_| "format contains NUL")?;
        checked_type(encoding, &format, item)?;
        let layout = shape.and_then(|shape| Self::new(encoding, format, item, shape));
        let mut layout = layout.ok_or("shape exceeds the address space")?;
        layout.readonly = fixed[11] == 1;
        let (offset, bytes) = (number(16, 4), number(24, 8));
        if offset != layout.offset() as u64 {
            return Err(format!(
                "the elements begin at byte {offset} instead of {}",
                layout.offset()
            ));
        }
        if bytes != layout.bytes() as u64 || layout.message() != Some(total) {
            let (made, there) = (layout.bytes(), total as u64 - offset.min(total as u64));
            return Err(format!(
                "the header announces {bytes} bytes of elements, but {there} are present, and the shape requires {made}"
            ));
        }
        Ok(layout)
    }
}

/// Validates an element type. Rejects pointers: with such a format from a peer, Python would use bytes as addresses.
fn checked_type(encoding: Encoding, format: &CString, item: usize) -> Result<(), &'static str> {
    let bytes = format.as_bytes();
    if !bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ' || *byte >= 0x80) {
        return Err("format contains control characters");
    }
    if encoding == Encoding::Time {
        let named = matches!(bytes, [b'<' | b'>', b'M' | b'm', b'8', ..]) && item == 8;
        return if named { Ok(()) } else { Err("format is not a numpy time type of 8 bytes") };
    }
    if std::str::from_utf8(bytes).is_err() {
        return Err("format is not UTF-8");
    }
    // Colons enclose field names. Outside of names, these letters denote objects, pointers and functions.
    let outside = bytes.split(|byte| *byte == b':').step_by(2);
    if bytes.is_empty() || outside.flatten().any(|byte| matches!(byte, b'O' | b'P' | b'&' | b'X')) {
        return Err("the format is empty, or contains objects or pointers");
    }
    Ok(())
}

impl Layout {
    /// Returns `true` if elements with the other layout can be copied byte for byte into memory with this layout.
    pub fn holds(&self, other: &Self) -> bool {
        self.shape == other.shape && self.item == other.item && self.simple() == other.simple()
    }

    /// Normalizes the format, so that equal types compare equal: `l` becomes `q` if both have 8 bytes, and all
    /// notations of the machine's byte order become equal.
    fn simple(&self) -> Vec<u8> {
        let format = match self.encoding {
            Encoding::Buffer => self.format.as_bytes(),
            Encoding::Time => &self.of_buffer()[..2],
        };
        match format {
            [order @ (b'<' | b'>' | b'@' | b'='), letter] => {
                let is_native = *order == b'=' || *order == b'<' && cfg!(target_endian = "little");
                let order = if is_native { b'@' } else { *order };
                vec![order, long(*letter, format[0] == b'@')]
            }
            [letter] => vec![b'@', long(*letter, true)],
            // numpy marks some structures with the byte order of the machine, and others not at all.
            format => format.iter().copied().filter(|byte| !matches!(byte, b'=' | b'@')).collect(),
        }
    }

    /// Returns the exception for an array that differs from the given array in type or shape.
    pub fn unlike(&self, room: Option<&Self>) -> PyErr {
        let words = |layout: &Self| {
            let format = layout.format.to_string_lossy();
            format!("{:?} of {format:?}, {} bytes each", layout.shape, layout.item)
        };
        let room = room.map_or("nothing".to_owned(), words);
        PyValueError::new_err(format!(
            "the message has {}, but the given array has {room}; the message was not removed",
            words(self)
        ))
    }
}

/// Replaces a letter for a type of native size by one for a type of fixed size.
fn long(letter: u8, native: bool) -> u8 {
    match letter {
        b'l' if native && size_of::<std::ffi::c_long>() == 8 => b'q',
        b'L' if native && size_of::<std::ffi::c_long>() == 8 => b'Q',
        letter => letter,
    }
}
