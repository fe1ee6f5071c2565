//! A frame: 32 bytes about the payload, then the payload, then nothing up to a multiple of 64.

use super::{ALIGN, FRAME_HEADER, Fault, put, u32_at, u64_at};

const MESSAGE: u16 = 1;
const SUMMED: u16 = 1;

/// The frame of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of payload.
    pub len: u32,
    /// Number of the message in its channel, from 0.
    pub seq: u64,
    /// [`Frame::sum`] of it, if the producer writes checksums.
    pub crc: Option<u32>,
}

/// Bytes of the ring that a payload of `len` bytes takes with its header.
pub const fn occupied(len: u64) -> u64 {
    (FRAME_HEADER as u64 + len).next_multiple_of(ALIGN)
}

impl Frame {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        put(&mut bytes, 0, &self.len.to_le_bytes());
        put(&mut bytes, 4, &MESSAGE.to_le_bytes());
        put(&mut bytes, 6, &if self.crc.is_some() { SUMMED } else { 0 }.to_le_bytes());
        put(&mut bytes, 8, &self.seq.to_le_bytes());
        put(&mut bytes, 16, &self.crc.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// Reads a header that was copied out of the ring, of which `room` bytes are committed from
    /// this frame's beginning, and which must carry the number `seq`.
    pub fn parse(bytes: &[u8; FRAME_HEADER], room: u64, seq: u64) -> Result<Self, Fault> {
        let word = u32_at(bytes, 4);
        let (kind, flags) = (word as u16, (word >> 16) as u16);
        if kind != MESSAGE || flags & !SUMMED != 0 {
            return Err(format!("frame {seq}: kind {kind} with flags {flags}"));
        }
        let len = u32_at(bytes, 0);
        if occupied(u64::from(len)) > room {
            return Err(format!("frame {seq}: {len} bytes of payload in {room} committed bytes"));
        }
        if u64_at(bytes, 8) != seq {
            return Err(format!("frame {seq}: its number says {}", u64_at(bytes, 8)));
        }
        let crc = (flags & SUMMED != 0).then(|| u32_at(bytes, 16));
        Ok(Self { len, seq, crc })
    }

    /// CRC-32C of the first 16 bytes of the header, flag set, and then the payload.
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
