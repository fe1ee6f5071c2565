//! The destination memory of transfers: used before, or new for every operation.

use serde::Deserialize;
use thalweg_channel::bulk::{Buffer, Destination, buffer};
use thalweg_sys::{Errno, map::Map};

/// The state of the destination before a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// Memory on ordinary pages that was written before.
    #[default]
    Resident,
    /// A mapping of ordinary pages that were not touched yet. Page faults are part of an operation; mapping and
    /// unmapping are not.
    Fresh,
    /// No memory before the transfer. Allocating it on huge pages is part of an operation; freeing it is not.
    Huge,
}

/// Bytes of new memory that are allocated at once, for consecutive operations. An operation that needs more gets memory
/// for itself alone.
const STRETCH: usize = 64 << 20;
/// Maximum number of operations for which memory is allocated at once. Each may need a mapping and a descriptor, and a
/// process can usually have 1024 descriptors.
const MOST: usize = 256;

impl Residency {
    pub const ALL: [Self; 3] = [Self::Resident, Self::Fresh, Self::Huge];

    /// Returns the name of this residency in messages to the helper process.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Fresh => "fresh",
            Self::Huge => "huge",
        }
    }

    /// Converts to the channel's type, which a receiver reports to its sender.
    pub fn destination(self) -> Destination {
        match self {
            Self::Resident => Destination::Resident,
            Self::Fresh => Destination::Fresh,
            Self::Huge => Destination::FreshHuge,
        }
    }
}

/// Returns the number of operations of `bytes` bytes for which new memory is allocated at once.
pub fn at_once(bytes: usize) -> u32 {
    (STRETCH / bytes.max(1)).clamp(1, MOST) as u32
}

/// Memory for several consecutive operations.
pub struct DestinationMemory {
    residency: Residency,
    bytes: usize,
    /// Resident memory, or fresh memory for several operations.
    mapped: Option<Map>,
    /// For huge pages: one buffer per operation.
    made: Vec<Buffer>,
}

impl DestinationMemory {
    /// Creates a value without memory, for operations of `bytes` bytes each. [`Self::prepare`] or [`Self::make`]
    /// allocates the memory.
    pub fn new(residency: Residency, bytes: usize) -> Self {
        Self { residency, bytes, mapped: None, made: Vec::new() }
    }

    /// Allocates the memory for `count` operations. Callers do this outside the timed part.
    pub fn prepare(&mut self, count: u32) -> Result<(), String> {
        let len = match self.residency {
            Residency::Resident if self.mapped.is_some() => return Ok(()),
            Residency::Resident => Some(self.bytes),
            Residency::Fresh => self.bytes.checked_mul(count as usize),
            Residency::Huge => {
                self.made = Vec::with_capacity(count as usize);
                return Ok(());
            }
        };
        let mut map = len
            .ok_or(Errno::NOMEM)
            .and_then(ordinary)
            .map_err(|errno| format!("cannot allocate buffers of {} bytes: {errno}", self.bytes))?;
        if self.residency == Residency::Resident {
            map.bytes_mut().unwrap_or_default().fill(1);
        }
        self.mapped = Some(map);
        Ok(())
    }

    /// Returns the destination of the operation with this number; `None` if the operation allocates its own.
    pub fn destination(&mut self, number: u32) -> Option<&mut [u8]> {
        let at = self.start(number);
        self.mapped.as_mut()?.bytes_mut()?.get_mut(at..at + self.bytes)
    }

    /// Allocates the buffer of one operation. This is part of the timed operation.
    pub fn make(&self) -> Result<Buffer, String> {
        buffer(self.bytes).map_err(|errno| format!("cannot allocate {} bytes: {errno}", self.bytes))
    }

    /// Keeps the buffer that an operation allocated.
    pub fn keep(&mut self, buffer: Buffer) {
        self.made.push(buffer);
    }

    /// Returns the bytes that the operation with this number has written.
    pub fn landed(&self, number: u32) -> &[u8] {
        if let Some(buffer) = self.made.get(number as usize) {
            return buffer;
        }
        let at = self.start(number);
        let mapped = self.mapped.as_ref().and_then(Map::bytes);
        mapped.and_then(|bytes| bytes.get(at..at + self.bytes)).unwrap_or_default()
    }

    /// Frees all memory except resident memory. Callers do this outside the timed part.
    pub fn clear(&mut self) {
        self.made.clear();
        if self.residency != Residency::Resident {
            self.mapped = None;
        }
    }

    fn start(&self, number: u32) -> usize {
        match self.residency {
            Residency::Fresh => self.bytes.saturating_mul(number as usize),
            Residency::Resident | Residency::Huge => 0,
        }
    }
}

/// Maps memory on ordinary pages, even if the system uses huge pages by default.
pub fn ordinary(len: usize) -> Result<Map, Errno> {
    let map = Map::anonymous(len, false)?;
    // A kernel without huge pages returns an error, and has only ordinary pages anyway.
    let _ = map.advise_small();
    Ok(map)
}

/// Reads all bytes; the result depends on every word.
pub fn read_through(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().fold(0, |sum, byte| sum + u64::from(*byte));
    let word = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    words.fold(rest, |sum: u64, eight| sum.wrapping_add(word(eight)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_place_and_new_memory_is_new() {
        for residency in Residency::ALL {
            let mut landing = DestinationMemory::new(residency, 5000);
            for round in 0..2 {
                landing.prepare(3).unwrap();
                for number in 0..3 {
                    let byte = number as u8 + 7;
                    if let Some(place) = landing.destination(number) {
                        let old = if residency == Residency::Fresh { 0 } else { place[0] };
                        assert_eq!((place.len(), place[4999]), (5000, old), "{round}");
                        place.fill(byte);
                    } else {
                        let mut made = landing.make().unwrap();
                        made.fill(byte);
                        landing.keep(made);
                    }
                    assert_eq!(landing.landed(number), [byte; 5000]);
                }
                landing.clear();
                let kept = residency == Residency::Resident;
                assert_eq!(landing.landed(0).len(), if kept { 5000 } else { 0 });
            }
            assert!(Residency::ALL.iter().any(|r| r.name() == residency.name()));
        }
        assert_eq!((at_once(1 << 30), at_once(1 << 20), at_once(1)), (1, 64, 256));
    }

    #[test]
    fn all_bytes_are_read() {
        assert_eq!(read_through(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3]), 5);
        assert_eq!(read_through(&[]), 0);
        let huge = DestinationMemory::new(Residency::Huge, usize::MAX);
        assert!(huge.make().is_err());
        assert!(DestinationMemory::new(Residency::Fresh, usize::MAX).prepare(2).is_err());
    }
}
