//! Finds data and holes in files.

use rustix::fs::{SeekFrom, Stat, seek};
use std::os::fd::BorrowedFd;
use thalweg_sys::{Errno, io};

use crate::{
    error::{Attempt, CopyFailure, at_source},
    identity::size,
};

/// Returns `true` if a file has fewer blocks than its size needs. Only such a file is searched for holes.
pub(crate) fn seems_sparse(stat: &Stat) -> bool {
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    size(stat).saturating_sub(allocated) >= BLOCK as u64
}

/// A range of data: start, end.
pub(crate) type Extent = (u64, u64);

/// Returns the next range of data at or after `at`; `None` if only a hole follows.
pub(crate) fn next_extent(fd: BorrowedFd<'_>, at: u64, end: u64) -> Attempt<Option<Extent>> {
    if at >= end {
        return Ok(None);
    }
    let from = match seek(fd, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not support holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, end))),
        Err(errno) => return Err(CopyFailure::Source("lseek", errno)),
    };
    if from >= end {
        return Ok(None);
    }
    let to = seek(fd, SeekFrom::Hole(from)).map_err(at_source("lseek"))?;
    Ok(Some((from, to.min(end).max(from + 1))))
}

/// Minimum size of a hole: the smallest block size of common file systems.
pub(crate) const BLOCK: usize = 4096;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Writes all blocks of `bytes` that are not all zero, at offset `at`. An error contains the offset up to which
/// everything was written.
pub(crate) fn write_but_zeros(fd: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Attempt<()> {
    let is_zero = |block: &[u8]| ZEROS.get(..block.len()) == Some(block);
    let mut begin = 0;
    while begin < bytes.len() {
        let rest = &bytes[begin..];
        // Blocks are aligned to the start of the file, so the first block in `bytes` may be shorter.
        let first = BLOCK - ((at as usize).wrapping_add(begin) % BLOCK);
        let (head, tail) = rest.split_at(first.min(rest.len()));
        if is_zero(head) {
            begin += head.len();
            continue;
        }
        let more: usize =
            tail.chunks(BLOCK).take_while(|block| !is_zero(block)).map(<[u8]>::len).sum();
        let end = begin + head.len() + more;
        write_all(fd, &bytes[begin..end], at + begin as u64)?;
        begin = end;
    }
    Ok(())
}

/// Writes all bytes at offset `at`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Attempt<()> {
    io::pwrite_all(fd, bytes, at).map_err(|end| CopyFailure::Sink("pwrite", end.errno, end.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fstat, ftruncate};
    use std::{fs::File, io::Read, os::fd::AsFd};

    #[test]
    fn zeros_are_left_out_and_everything_else_is_written() {
        let mut bytes = vec![0; 10 * BLOCK + 17];
        bytes[BLOCK] = 1;
        bytes[5 * BLOCK..6 * BLOCK + 3].fill(2);
        let last = bytes.len() - 1;
        bytes[last] = 3;
        for skew in [0, 1, 4095] {
            let mut file = tempfile::tempfile().unwrap();
            write_but_zeros(file.as_fd(), &bytes[..skew], 0).unwrap();
            write_but_zeros(file.as_fd(), &bytes[skew..], skew as u64).unwrap();
            ftruncate(&file, bytes.len() as u64).unwrap();
            let mut copy = Vec::new();
            file.read_to_end(&mut copy).unwrap();
            assert_eq!(copy, bytes);
        }
    }

    #[test]
    fn extents_cover_every_byte_that_was_written() {
        let file: File = tempfile::tempfile().unwrap();
        ftruncate(&file, 10 << 20).unwrap();
        write_all(file.as_fd(), b"one", 3 << 20).unwrap();
        write_all(file.as_fd(), b"two", 7 << 20).unwrap();
        let mut at = 0;
        let mut seen = Vec::new();
        while let Some((from, to)) = next_extent(file.as_fd(), at, 10 << 20).unwrap() {
            seen.push((from, to));
            at = to;
        }
        let covers = |byte: u64| seen.iter().any(|(from, to)| (*from..*to).contains(&byte));
        assert!(covers(3 << 20) && covers((7 << 20) + 2));
        let stat = fstat(&file).unwrap();
        assert!(seems_sparse(&stat) || seen == [(0, 10 << 20)]);
    }
}
