//! The sums of the blocks of a file, as the body of an answer.

use std::{os::fd::AsFd, sync::Arc};

use thalweg_sys::{Errno, io};

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES},
    opened::ServedFile,
    tasks::{HashSize, HelperLane},
};
use crate::blocks::{BlockRequest, RollingSum, short};

/// Number of bytes read per call.
const PIECE: usize = 256 << 10;
/// Number of bytes read in one turn.
const READ_PER_TURN: u64 = 8 << 20;

/// Reads a file and produces the sums of its blocks, and then the digest of the whole file.
pub struct BlockSums {
    file: Arc<ServedFile>,
    request: BlockRequest,
    at: u64,
    /// State of the current block.
    block: blake3::Hasher,
    rolling: RollingSum,
    whole: blake3::Hasher,
    buffer: Vec<u8>,
}

impl BlockSums {
    pub fn of(file: Arc<ServedFile>, request: BlockRequest) -> Self {
        let (block, whole) = (request.hasher(), blake3::Hasher::new());
        let (rolling, buffer) = (RollingSum::default(), Vec::new());
        Self { file, request, at: 0, block, rolling, whole, buffer }
    }

    /// Reads once, and adds the sums of the blocks that are complete. Returns `true` at the end of the file.
    fn advance(&mut self, sums: &mut Vec<u8>) -> Result<bool, String> {
        let (size, end) = (self.request.size, self.file.version.size);
        self.buffer.resize(PIECE, 0);
        let ask = self.buffer.len().min(usize::try_from(end - self.at).unwrap_or(PIECE));
        let got = match io::pread(self.file.as_fd(), &mut self.buffer[..ask], self.at) {
            Err(Errno::INTR) => return Ok(false),
            Ok(0) if ask > 0 => return Err("the file was truncated while it was read".to_owned()),
            answer => answer.map_err(|errno| std::io::Error::from(errno).to_string())?,
        };
        self.whole.update(&self.buffer[..got]);
        let mut rest = &self.buffer[..got];
        while !rest.is_empty() {
            let left = size - self.at % size;
            let (now, later) =
                rest.split_at(rest.len().min(usize::try_from(left).unwrap_or(PIECE)));
            self.rolling.push(now);
            self.block.update(now);
            self.at += now.len() as u64;
            rest = later;
            if self.at.is_multiple_of(size) || self.at == end {
                sums.extend_from_slice(&self.rolling.value().to_le_bytes());
                sums.extend_from_slice(&short(&self.block));
                (self.rolling, self.block) = (RollingSum::default(), self.request.hasher());
            }
        }
        Ok(self.at == end)
    }
}

impl Supply for BlockSums {
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String> {
        let (mut sums, begin) = (Vec::new(), self.at);
        while self.at - begin < READ_PER_TURN && sums.len() < TURN_BYTES {
            (turn.check_cancelled)().map_err(|errno| std::io::Error::from(errno).to_string())?;
            if !self.advance(&mut sums)? {
                continue;
            }
            if !self.file.is_unchanged() {
                return Err("the file changed while it was read".to_owned());
            }
            sums.extend_from_slice(self.whole.finalize().as_bytes());
            return Ok(BodyPiece { parts: vec![BodyPart::Bytes(sums)], is_last: true });
        }
        let parts = if sums.is_empty() { Vec::new() } else { vec![BodyPart::Bytes(sums)] };
        Ok(BodyPiece { parts, is_last: false })
    }

    fn lane(&self) -> HelperLane {
        HelperLane::Hash(HashSize::of(self.file.version.size))
    }

    fn held(&self) -> u64 {
        // Memory of two hash states and of the buffer.
        (PIECE + 2 * size_of::<blake3::Hasher>()) as u64
    }
}
