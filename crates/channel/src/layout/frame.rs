//! A frame, which contains one message: a 32-byte header, the payload, and padding to a multiple of 64 bytes.

use super::{ALIGN, FRAME_HEADER, Fault, put, u64_at};

const MESSAGE: u16 = 1;
const SUMMED: u16 = 1;

/// The fields of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of payload.
    pub len: u32,
    /// Number of the message in its channel, from 0.
    pub seq: u64,
    /// Checksum of the message ([`Frame::sum`]), if the producer writes checksums.
    pub crc: Option<u32>,
}

/// Returns the number of bytes that a message with a payload of `len` bytes occupies in the ring, including header and
/// padding.
pub const fn occupied(len: u64) -> u64 {
    (FRAME_HEADER as u64 + len).next_multiple_of(ALIGN)
}

impl Frame {
    /// Returns the header as four words. Whole words are stored to and loaded from shared memory. If smaller stores had
    /// written a word, its load would have to wait until the store buffer has drained, including the earlier stores of
    /// the payload.
    #[inline]
    pub const fn to_words(self) -> [u64; FRAME_HEADER / 8] {
        let (flags, crc) = match self.crc {
            Some(crc) => (SUMMED, crc),
            None => (0, 0),
        };
        let first = self.len as u64 | (MESSAGE as u64) << 32 | (flags as u64) << 48;
        [first, self.seq, crc as u64, 0]
    }

    /// Returns the header as bytes.
    pub fn to_bytes(self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        for (at, word) in self.to_words().iter().enumerate() {
            put(&mut bytes, 8 * at, &word.to_le_bytes());
        }
        bytes
    }

    /// Parses a header that was copied out of the ring. `room` is the number of committed bytes from the start of the
    /// frame. `seq` is the message number that the header must contain.
    #[inline]
    pub fn of_words(words: [u64; FRAME_HEADER / 8], room: u64, seq: u64) -> Result<Self, Fault> {
        let [first, number, sum, _] = words;
        let (kind, flags) = ((first >> 32) as u16, (first >> 48) as u16);
        let len = first as u32;
        if kind == MESSAGE
            && flags & !SUMMED == 0
            && occupied(u64::from(len)) <= room
            && number == seq
        {
            let crc = (flags & SUMMED != 0).then_some(sum as u32);
            return Ok(Self { len, seq, crc });
        }
        Err(Self::fault(words, room, seq))
    }

    #[cold]
    fn fault([first, number, ..]: [u64; FRAME_HEADER / 8], room: u64, seq: u64) -> Fault {
        let (kind, flags, len) = ((first >> 32) as u16, (first >> 48) as u16, first as u32);
        if kind != MESSAGE || flags & !SUMMED != 0 {
            return format!("frame {seq}: unknown kind {kind} or flags {flags}");
        }
        if occupied(u64::from(len)) > room {
            return format!(
                "frame {seq}: {len} bytes of payload do not fit in {room} committed bytes"
            );
        }
        format!("frame {seq}: its header has the sequence number {number}")
    }

    /// Parses a header from bytes, like [`Frame::of_words`].
    pub fn parse(bytes: &[u8; FRAME_HEADER], room: u64, seq: u64) -> Result<Self, Fault> {
        Self::of_words(std::array::from_fn(|at| u64_at(bytes, 8 * at)), room, seq)
    }

    /// Returns the CRC-32C of the first 16 bytes of the header, with the checksum flag set, and of the payload.
    pub fn sum(len: u32, seq: u64, payload: &[u8]) -> u32 {
        let header = Self { len, seq, crc: Some(0) }.to_bytes();
        thalweg_kernels::crc32c(payload, thalweg_kernels::crc32c(&header[..16], 0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_take_whole_lines() {
        let sizes = [(0, 64), (32, 64), (33, 128), (4095, 4160), (4064, 4096), (4065, 4160)];
        for (len, takes) in sizes {
            assert_eq!(occupied(len), takes, "{len}");
        }
    }

    #[test]
    fn a_frame_that_lies_is_refused() {
        let frame = Frame { len: 33, seq: 5, crc: None };
        let bytes = frame.to_bytes();
        assert_eq!(Frame::parse(&bytes, 128, 5), Ok(frame));
        for (room, seq) in [(127, 5), (0, 5), (128, 4), (128, u64::MAX)] {
            assert!(Frame::parse(&bytes, room, seq).is_err(), "{room} {seq}");
        }
        for (at, value) in [(4, 0), (4, 2), (5, 1), (6, 2), (7, 1)] {
            let mut bad = bytes;
            bad[at] = value;
            assert!(Frame::parse(&bad, 128, 5).is_err(), "byte {at} = {value}");
        }
        let mut long = bytes;
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Frame::parse(&long, 1 << 30, 5).is_err());
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_what_was_written(len in 0u32..1 << 20, seq: u64, crc: Option<u32>) {
            let frame = Frame { len, seq, crc };
            prop_assert_eq!(Frame::parse(&frame.to_bytes(), 1 << 30, seq), Ok(frame));
        }

        #[test]
        fn no_bytes_crash_the_parser(bytes: [u8; FRAME_HEADER], room: u64, seq: u64) {
            if let Ok(frame) = Frame::parse(&bytes, room, seq) {
                prop_assert!(occupied(u64::from(frame.len)) <= room);
            }
        }
    }
}
