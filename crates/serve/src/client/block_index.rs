//! Finds the blocks of a server's file in an older file of this machine, at any offset.

use std::{
    num::NonZero,
    ops::Range,
    os::fd::BorrowedFd,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use thalweg_core::Cancelled;
use thalweg_sys::{fault, io};

use super::{FetchError, deadline::CancelCheck};
use crate::blocks::{BlockDigest, BlockRequest, DIGEST_BYTES, RollingSum, SUM_BYTES, short};

/// Bytes of the older file that are read at a time, in addition to one block.
const PIECE: usize = 1 << 20;
/// Largest number of offsets with a matching rolling sum but a different digest, per block of the file. Without this
/// limit, a server could send sums that make the client hash every offset.
const MOST_MISSES: u64 = 8;
/// Smallest part of the older file, in bytes, that a search thread receives.
const LEAST_PART: u64 = 16 << 20;
const MOST_THREADS: u64 = 4;

/// The sum of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockSum {
    rolling: u32,
    digest: [u8; 8],
    /// The number of the block in the file.
    number: u32,
}

/// The sums of a file, sorted for the search by value.
#[derive(Debug)]
pub struct BlockIndex {
    request: BlockRequest,
    /// Size of the file in bytes.
    len: u64,
    /// The sums of whole blocks, sorted.
    sums: Vec<BlockSum>,
    /// The sum of a shorter block at the end.
    last: Option<BlockSum>,
    /// A bitmap that rejects most unknown rolling sums without a search. [`Self::bit`] selects the bit of a sum.
    filter: Vec<u64>,
    /// Number of bits by which a mixed sum is shifted right to select its bit in the filter.
    shift: u32,
    /// BLAKE3 of the digests of all blocks.
    pub root: BlockDigest,
}

/// Receives a block: its offset in the file, its bytes, and their digest. Several threads may call it.
pub type BlockSink<'a> = dyn Fn(u64, &[u8], &BlockDigest) -> Result<(), FetchError> + Sync + 'a;

impl BlockIndex {
    /// Reads the answer to `request` about a file of `len` bytes. `None` if the length of the answer is wrong.
    pub fn parse(request: BlockRequest, len: u64, answer: &[u8]) -> Option<Self> {
        let count = request.count(len)?;
        let (sums, root) = answer.split_at_checked(usize::try_from(count).ok()? * SUM_BYTES)?;
        let root: [u8; DIGEST_BYTES] = root.try_into().ok()?;
        let (chunks, _) = sums.as_chunks::<SUM_BYTES>();
        let sum = |(number, bytes): (u32, &[u8; SUM_BYTES])| {
            let [a, b, c, d, digest @ ..] = *bytes;
            BlockSum { rolling: u32::from_le_bytes([a, b, c, d]), digest, number }
        };
        let mut sums: Vec<BlockSum> = (0..).zip(chunks).map(sum).collect();
        let last = if len.is_multiple_of(request.size) { None } else { sums.pop() };
        sums.sort_unstable();
        // At least 64 bits for each sum, so that few other values need a binary search.
        let bits = (sums.len().max(1).ilog2() + 7).clamp(10, 26);
        let mut index = Self {
            request,
            len,
            sums,
            last,
            filter: vec![0; 1 << (bits - 6)],
            shift: 32 - bits,
            root,
        };
        for n in 0..index.sums.len() {
            let bit = index.bit(index.sums[n].rolling);
            index.filter[bit / 64] |= 1 << (bit % 64);
        }
        Some(index)
    }

    fn bit(&self, rolling: u32) -> usize {
        // Fibonacci hashing mixes the sum, because neither half of a rolling sum is distributed uniformly.
        (rolling.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    fn may_have(&self, rolling: u32) -> bool {
        let bit = self.bit(rolling);
        self.filter[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Returns the index range of the entries in `sums` with this rolling sum.
    fn with_rolling(&self, rolling: u32) -> Range<usize> {
        let begin = self.sums.partition_point(|sum| sum.rolling < rolling);
        begin..self.sums.partition_point(|sum| sum.rolling <= rolling)
    }

    /// Passes the blocks that consist of zeros to `take`.
    pub fn find_zeros(&self, take: &BlockSink<'_>) -> Result<(), FetchError> {
        let Ok(block) = usize::try_from(self.request.size) else { return Ok(()) };
        let zeros = vec![0; block];
        let sum = RollingSum::of(&zeros);
        self.search().take(sum, &zeros, take)?;
        let len = self.len % self.request.size;
        let last = &zeros[..len as usize];
        if let Some(digest) = self.last.and_then(|sum| self.digest_of(sum, last)) {
            take(self.len - len, last, &digest)?;
        }
        Ok(())
    }

    /// Returns the digest of these bytes if they have this sum.
    fn digest_of(&self, sum: BlockSum, bytes: &[u8]) -> Option<BlockDigest> {
        let may_be = RollingSum::of(bytes) == sum.rolling;
        let digest = may_be.then(|| self.request.digest(bytes))?;
        (short(&digest) == sum.digest).then_some(digest)
    }

    fn search(&self) -> BlockSearch<'_> {
        BlockSearch {
            index: self,
            is_taken: self.sums.iter().map(|_| AtomicBool::new(false)).collect(),
            misses: AtomicU64::new(0),
            most_misses: (self.sums.len() as u64).saturating_mul(MOST_MISSES) + 1024,
        }
    }

    /// Finds blocks in the first `size` bytes of an older file. `take` gets each block of the server's file at most
    /// once. A read error ends the search. For a large file, several threads search one part each.
    pub fn find_in(
        &self,
        older: BorrowedFd<'_>,
        size: u64,
        take: &BlockSink<'_>,
        check: &CancelCheck<'_>,
    ) -> Result<(), FetchError> {
        self.find_last(older, size, take)?;
        let search = self.search();
        let processors = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let threads = (size / LEAST_PART).clamp(1, processors.min(MOST_THREADS));
        // Parts begin at multiples of the block size, so that no unmoved block lies in two parts.
        let part = size.div_ceil(threads).next_multiple_of(self.request.size);
        let find = |number: u64| {
            let part = number * part..((number + 1) * part).min(size);
            self.find_in_part(older, part, &search, take, check)
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|number| {
                    let faults = fault::inherit();
                    let work = move || faults.enter(|| find(number));
                    (number, thread::Builder::new().spawn_scoped(scope, work))
                })
                .collect();
            let mut ended = find(0);
            for (number, other) in others {
                ended = ended.and(match other {
                    Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    Err(_) => find(number),
                });
            }
            ended
        })
    }

    /// Finds the blocks that begin in a part of the older file.
    fn find_in_part(
        &self,
        older: BorrowedFd<'_>,
        part: Range<u64>,
        search: &BlockSearch<'_>,
        take: &BlockSink<'_>,
        check: &CancelCheck<'_>,
    ) -> Result<(), FetchError> {
        let Ok(block) = usize::try_from(self.request.size) else { return Ok(()) };
        let buffer = vec![0; block + PIECE];
        let mut window = OlderWindow { older, buffer, at: 0, have: 0, next: part.start };
        let may_continue =
            |window: &OlderWindow<'_>| search.may_continue() && window.offset() < part.end;
        while may_continue(&window) && window.holds(block, check)? {
            let mut sum = RollingSum::default();
            sum.push(window.bytes(block));
            while !(self.may_have(sum.value())
                && search.take(sum.value(), window.bytes(block), take)?)
            {
                if !may_continue(&window) || !window.holds(block + 1, check)? {
                    return Ok(());
                }
                self.roll(&mut sum, &mut window, block);
            }
            window.at += block;
        }
        Ok(())
    }

    /// Moves the window by at least one byte, up to the next offset with a sum that passes the filter.
    fn roll(&self, sum: &mut RollingSum, window: &mut OlderWindow<'_>, block: usize) {
        let bytes = &window.buffer[window.at..window.have];
        for (first, next) in bytes.iter().zip(&bytes[block..]) {
            sum.roll(block as u32, *first, *next);
            window.at += 1;
            if self.may_have(sum.value()) {
                return;
            }
        }
    }

    /// Looks for the last block, if it is shorter, at its offset in the server's file and at the end of the older file.
    fn find_last(
        &self,
        older: BorrowedFd<'_>,
        size: u64,
        take: &BlockSink<'_>,
    ) -> Result<(), FetchError> {
        let Some(last) = self.last else { return Ok(()) };
        let len = self.len % self.request.size;
        let own = self.len - len;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        for at in [Some(own), size.checked_sub(len)].into_iter().flatten() {
            let is_read = io::pread_full(older, &mut bytes, at).is_ok_and(|got| got == bytes.len());
            let digest = if is_read { self.digest_of(last, &bytes) } else { None };
            if let Some(digest) = digest {
                return take(own, &bytes, &digest);
            }
        }
        Ok(())
    }
}

/// State of a search for blocks in an older file.
struct BlockSearch<'i> {
    index: &'i BlockIndex,
    /// One flag per group of equal sums, at the index of the group's first sum in `sums`. `true` if a thread has taken
    /// the blocks of the group.
    is_taken: Vec<AtomicBool>,
    misses: AtomicU64,
    most_misses: u64,
}

impl BlockSearch<'_> {
    /// Returns `false` if too many offsets had a matching rolling sum but a different digest ([`MOST_MISSES`]).
    fn may_continue(&self) -> bool {
        self.misses.load(Relaxed) <= self.most_misses
    }

    /// Passes to the sink `take` every block of the server's file that equals these bytes. Returns `true` if there are
    /// any.
    fn take(&self, rolling: u32, bytes: &[u8], take: &BlockSink<'_>) -> Result<bool, FetchError> {
        let range = self.index.with_rolling(rolling);
        if range.is_empty() {
            return Ok(false);
        }
        let digest = self.index.request.digest(bytes);
        let (sums, known) = (&self.index.sums[range.clone()], short(&digest));
        let begin = sums.partition_point(|sum| sum.digest < known);
        let end = sums.partition_point(|sum| sum.digest <= known);
        if begin == end {
            self.misses.fetch_add(1, Relaxed);
            return Ok(false);
        }
        if !self.is_taken[range.start + begin].swap(true, Relaxed) {
            for sum in &sums[begin..end] {
                take(u64::from(sum.number) * self.index.request.size, bytes, &digest)?;
            }
        }
        Ok(true)
    }
}

/// The bytes of the older file around the current offset.
struct OlderWindow<'o> {
    older: BorrowedFd<'o>,
    buffer: Vec<u8>,
    /// Offset of the current byte in the buffer, and the end of the bytes read.
    at: usize,
    have: usize,
    /// Offset in the file of the next byte to read.
    next: u64,
}

impl OlderWindow<'_> {
    /// Returns `true` if the window has at least `count` bytes. Reads more bytes if necessary.
    fn holds(&mut self, count: usize, check: &CancelCheck<'_>) -> Result<bool, Cancelled> {
        if self.have - self.at >= count {
            return Ok(true);
        }
        check()?;
        self.buffer.copy_within(self.at..self.have, 0);
        (self.at, self.have) = (0, self.have - self.at);
        // A read error ends the search like the end of the file.
        let got = io::pread_full(self.older, &mut self.buffer[self.have..], self.next).unwrap_or(0);
        self.have += got;
        self.next += got as u64;
        Ok(self.have >= count)
    }

    /// Returns the offset in the file of the current byte.
    fn offset(&self) -> u64 {
        self.next - (self.have - self.at) as u64
    }

    fn bytes(&self, count: usize) -> &[u8] {
        &self.buffer[self.at..self.at + count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, io::Write, os::fd::AsFd, sync::Mutex};
    use thalweg_testing::noise;

    /// Returns the answer of a server about these bytes.
    fn answer(request: &BlockRequest, bytes: &[u8]) -> Vec<u8> {
        let blocks = bytes.chunks(request.size as usize);
        let sum = |block: &[u8]| {
            [RollingSum::of(block).to_le_bytes().to_vec(), short(&request.digest(block)).to_vec()]
        };
        let digests: Vec<u8> = blocks.clone().flat_map(|block| request.digest(block)).collect();
        let mut answer: Vec<u8> = blocks.flat_map(sum).flatten().collect();
        answer.extend_from_slice(blake3::hash(&digests).as_bytes());
        answer
    }

    fn request(size: u64) -> BlockRequest {
        BlockRequest::parse(&format!("blocks={size}-0123456789abcdef0123456789abcdef")).unwrap()
    }

    /// Returns the blocks of `new` that are found in `old`, and checks that each has the right bytes.
    fn found(old: &[u8], new: &[u8], size: u64) -> Vec<u64> {
        let request = request(size);
        let index = BlockIndex::parse(request, new.len() as u64, &answer(&request, new)).unwrap();
        let mut older = tempfile::tempfile().unwrap();
        older.write_all(old).unwrap();
        let found = Mutex::new(BTreeSet::new());
        let take = |at: u64, bytes: &[u8], digest: &BlockDigest| {
            assert_eq!(bytes, &new[at as usize..][..bytes.len()]);
            assert_eq!(*digest, request.digest(bytes));
            assert!(found.lock().unwrap().insert(at / size), "block {at} was taken twice");
            Ok(())
        };
        index.find_in(older.as_fd(), old.len() as u64, &take, &|| Ok(())).unwrap();
        found.into_inner().unwrap().into_iter().collect()
    }

    #[test]
    fn blocks_are_found_wherever_they_moved() {
        let old = noise(3 << 20, 1);
        let blocks = (3 << 20) / 4096;
        assert_eq!(found(&old, &old, 4096), (0..blocks).collect::<Vec<_>>());
        let mut new = old.clone();
        (new[5000], new[2 << 20]) = (!old[5000], !old[2 << 20]);
        let all_but = |no: [u64; 2]| (0..blocks).filter(|n| !no.contains(n)).collect::<Vec<_>>();
        assert_eq!(found(&old, &new, 4096), all_but([1, 512]));
        // Ten more bytes at the start move every block.
        let moved = [&old[..10], &old].concat();
        let expected: Vec<u64> = (1..=blocks).collect();
        assert_eq!(found(&old, &moved, 4096), expected);
        assert_eq!(found(&moved, &old, 4096), (0..blocks).collect::<Vec<_>>());
        // The older file is shorter or longer, and its last block is not whole.
        assert_eq!(found(&old[..9000], &old, 4096), [0, 1]);
        assert_eq!(found(&old, &old[..9000], 4096), [0, 1, 2]);
        assert_eq!(found(&old[1..], &old[1 << 20..][..9000], 4096), [0, 1]);
        assert_eq!(found(b"", &old, 4096), [0; 0]);
        assert_eq!(found(&noise(1 << 20, 1), &vec![7; 1 << 20], 1024), [0; 0]);
    }

    #[test]
    fn threads_find_the_blocks_of_a_large_file_wherever_they_moved() {
        let old = noise(2 * LEAST_PART as usize + 5000, 1);
        let moved = [&old[..10], &old].concat();
        let blocks = moved.len().div_ceil(65_536) as u64;
        assert_eq!(found(&old, &moved, 65_536), (1..blocks).collect::<Vec<_>>());
        assert_eq!(found(&moved, &old, 65_536), (0..blocks).collect::<Vec<_>>());
    }

    #[test]
    fn equal_blocks_are_taken_once() {
        let zeros = vec![0; 1 << 20];
        assert_eq!(found(&zeros, &zeros, 1024).len(), 1024);
        assert_eq!(found(&zeros[..1024], &zeros, 1024).len(), 1024);
    }

    #[test]
    fn sums_that_lie_are_not_believed_and_the_search_ends() {
        let bytes = vec![7; 4 << 20];
        let request = request(1024);
        let mut lies = answer(&request, &bytes);
        let len = lies.len() - DIGEST_BYTES;
        lies[..len].as_chunks_mut::<SUM_BYTES>().0.iter_mut().for_each(|sum| sum[5] ^= 1);
        let index = BlockIndex::parse(request, bytes.len() as u64, &lies).unwrap();
        let mut older = tempfile::tempfile().unwrap();
        older.write_all(&bytes).unwrap();
        let take = |_: u64, _: &[u8], _: &BlockDigest| panic!("a digest was not compared");
        index.find_in(older.as_fd(), bytes.len() as u64, &take, &|| Ok(())).unwrap();
    }

    #[test]
    fn an_answer_of_another_length_is_refused() {
        let bytes = noise(10_000, 1);
        let request = request(1024);
        let right = answer(&request, &bytes);
        assert!(BlockIndex::parse(request, 10_000, &right).is_some());
        for wrong in [&right[..right.len() - 1], &[&right[..], &[0]].concat(), &[], &right[..31]] {
            assert!(BlockIndex::parse(request, 10_000, wrong).is_none());
        }
        assert!(BlockIndex::parse(request, 10_241, &right).is_none());
    }
}
