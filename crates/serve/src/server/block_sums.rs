//! The sums of the blocks of a file, as the body of an answer.

use std::{
    num::NonZero,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use thalweg_sys::{Errno, io};
use thalweg_tree::on_threads;

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES},
    opened::ServedFile,
    tasks::{HashSize, HelperLane},
};
use crate::blocks::{BlockDigest, BlockRequest, RollingSum, SUM_BYTES, short};

/// Number of bytes read per call.
const PIECE: u64 = 256 << 10;
/// Number of bytes read in one turn. A turn reads at least one block.
const READ_PER_TURN: u64 = 8 << 20;
/// Smallest number of bytes that a thread reads in a turn.
const LEAST_PART: u64 = 1 << 20;
const MOST_THREADS: usize = 4;

/// Reads a file and produces the sums of its blocks, and then the digest of their digests.
pub struct BlockSums {
    file: Arc<ServedFile>,
    request: BlockRequest,
    /// Number of the next block.
    next: u64,
    /// Hash of the digests of all blocks before `next`.
    digests: blake3::Hasher,
}

/// The sum of the block with this number.
struct NumberedSum {
    number: u64,
    rolling: u32,
    digest: BlockDigest,
}

impl BlockSums {
    pub fn of(file: Arc<ServedFile>, request: BlockRequest) -> Self {
        Self { file, request, next: 0, digests: blake3::Hasher::new() }
    }

    /// Returns the number of blocks of the file.
    fn count(&self) -> u64 {
        self.file.version.size.div_ceil(self.request.size)
    }

    /// Returns the sums of the next blocks. Several threads read the blocks.
    fn advance(&mut self, turn: &SupplyTurn<'_>) -> Result<Vec<u8>, String> {
        let size = self.request.size;
        let most = (READ_PER_TURN / size).clamp(1, (TURN_BYTES / SUM_BYTES) as u64);
        let end = self.count().min(self.next + most);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let useful = usize::try_from((end - self.next) * size / LEAST_PART).unwrap_or(usize::MAX);
        let next = AtomicU64::new(self.next);
        let work = || {
            let (mut sums, mut buffer) = (Vec::new(), vec![0; size.min(PIECE) as usize]);
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= end {
                    return Ok(sums);
                }
                // After an error, no thread begins another block.
                let sum = self.sum_of(number, &mut buffer, turn);
                sums.push(sum.inspect_err(|_| next.store(end, Relaxed))?);
            }
        };
        let parts = on_threads(useful.clamp(1, processors.min(MOST_THREADS)), work);
        let parts = parts.into_iter().collect::<Result<Vec<Vec<NumberedSum>>, String>>()?;
        let mut sums: Vec<NumberedSum> = parts.into_iter().flatten().collect();
        sums.sort_unstable_by_key(|sum| sum.number);
        let mut text = Vec::with_capacity(sums.len() * SUM_BYTES);
        for NumberedSum { rolling, digest, .. } in &sums {
            text.extend_from_slice(&rolling.to_le_bytes());
            text.extend_from_slice(&short(digest));
            self.digests.update(digest);
        }
        self.next = end;
        Ok(text)
    }

    /// Reads one block.
    fn sum_of(
        &self,
        number: u64,
        buffer: &mut [u8],
        turn: &SupplyTurn<'_>,
    ) -> Result<NumberedSum, String> {
        let (mut block, mut rolling) = (self.request.hasher(), RollingSum::default());
        let mut at = number * self.request.size;
        let end = self.file.version.size.min(at + self.request.size);
        while at < end {
            (turn.check_cancelled)().map_err(|errno| std::io::Error::from(errno).to_string())?;
            let ask = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let got = match io::pread(self.file.as_fd(), &mut buffer[..ask], at) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err("the file was truncated while it was read".to_owned()),
                answer => answer.map_err(|errno| std::io::Error::from(errno).to_string())?,
            };
            block.update(&buffer[..got]);
            rolling.push(&buffer[..got]);
            at += got as u64;
        }
        let digest = *block.finalize().as_bytes();
        Ok(NumberedSum { number, rolling: rolling.value(), digest })
    }
}

impl Supply for BlockSums {
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String> {
        let mut sums = self.advance(turn)?;
        let is_last = self.next == self.count();
        if is_last {
            if !self.file.is_unchanged() {
                return Err("the file changed while it was read".to_owned());
            }
            sums.extend_from_slice(self.digests.finalize().as_bytes());
        }
        Ok(BodyPiece { parts: vec![BodyPart::Bytes(sums)], is_last })
    }

    fn lane(&self) -> HelperLane {
        HelperLane::Hash(HashSize::of(self.file.version.size))
    }

    fn held(&self) -> u64 {
        size_of::<blake3::Hasher>() as u64
    }
}
