//! The bytes that arms (compared variants) move, and the files that contain them. The position of a byte determines its
//! value, so that every byte can be verified at its destination.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, OnceLock, Weak},
};

/// The content of a stream or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteContent {
    /// Zeros, as read from `/dev/zero`.
    Zeros,
    /// A pattern with a prime period, so that pages in the wrong order are detected.
    Pattern,
}

/// The largest prime below 2^20.
const PERIOD: usize = 1_048_573;
/// Maximum bytes that are compared or filled at once.
const PIECE: usize = 256 << 10;

impl ByteContent {
    /// Returns the name of this content in messages to helper processes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Pattern => "pattern",
        }
    }

    /// Returns the content with this name.
    pub fn named(name: &str) -> Result<Self, String> {
        [Self::Zeros, Self::Pattern]
            .into_iter()
            .find(|content| content.name() == name)
            .ok_or_else(|| format!("unknown content {name:?}"))
    }

    /// Returns at most `PIECE` bytes, starting at position `at`.
    pub fn piece(self, at: u64, len: usize) -> &'static [u8] {
        static ZEROS: [u8; PIECE] = [0; PIECE];
        match self {
            Self::Zeros => &ZEROS[..len],
            Self::Pattern => &pattern()[(at % PERIOD as u64) as usize..][..len],
        }
    }

    /// Fills `into` with the bytes from position `at` on.
    pub fn fill(self, at: u64, into: &mut [u8]) {
        for (n, piece) in into.chunks_mut(PIECE).enumerate() {
            piece.copy_from_slice(self.piece(at + (n * PIECE) as u64, piece.len()));
        }
    }
}

/// Returns the index of the first byte that differs from `content` at position `at`.
pub fn first_difference(content: ByteContent, at: u64, bytes: &[u8]) -> Option<usize> {
    bytes.chunks(PIECE).enumerate().find_map(|(n, piece)| {
        let expected = content.piece(at + (n * PIECE) as u64, piece.len());
        let equal = || piece.iter().zip(expected).take_while(|(a, b)| a == b).count();
        (piece != expected).then(|| n * PIECE + equal())
    })
}

/// Returns one period of the pattern, and after it the bytes for a piece that extends beyond the end of the period.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        // splitmix64 (Steele, Lea, Flood 2014): with probability 255/256, a byte differs from that of a zeroed or
        // stale page.
        let words = (1..=(PERIOD as u64).div_ceil(8)).flat_map(|n| {
            let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ (x >> 31)).to_le_bytes()
        });
        let mut bytes: Vec<u8> = words.take(PERIOD).collect();
        bytes.extend_from_within(..PIECE);
        bytes
    })
}

thread_local! {
    // The files that this thread's arms read, by device number. Number 0 stands for a memfd.
    static SHARED: RefCell<Vec<(u64, Weak<File>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns a file in `folder` with at least `len` bytes of the pattern, on storage and in the page cache. Arms of a
/// session that read from the same file system share one file.
pub fn file(folder: &Path, len: u64) -> io::Result<Arc<File>> {
    let device = folder.metadata()?.dev();
    let path = folder.join("content");
    let file = shared(device, || {
        File::options().read(true).write(true).create(true).truncate(false).open(path)
    })?;
    settle(&file, len)?;
    Ok(file)
}

/// Returns a memfd with at least `len` bytes of the pattern. All arms of a session share it.
pub fn memfd(len: u64) -> io::Result<Arc<File>> {
    let make = || Ok(File::from(memfd_create("thalweg-source", MemfdFlags::CLOEXEC)?));
    let memory = shared(0, make)?;
    grow(&memory, len)?;
    Ok(memory)
}

/// Creates a file with exactly `len` bytes of the pattern, on storage and in the page cache.
pub fn own_file(path: &Path, len: u64) -> io::Result<()> {
    settle(&File::create(path)?, len)
}

fn shared(device: u64, make: impl FnOnce() -> io::Result<File>) -> io::Result<Arc<File>> {
    SHARED.with_borrow_mut(|files| {
        files.retain(|(_, file)| file.strong_count() > 0);
        let found = files.iter().find(|(number, _)| *number == device);
        if let Some(file) = found.and_then(|(_, file)| file.upgrade()) {
            return Ok(file);
        }
        let file = Arc::new(make()?);
        files.push((device, Arc::downgrade(&file)));
        Ok(file)
    })
}

/// Grows the file to at least `len` bytes and syncs it, so that no writeback runs during the first samples.
fn settle(file: &File, len: u64) -> io::Result<()> {
    if grow(file, len)? { file.sync_all() } else { Ok(()) }
}

/// Grows a file if needed. Returns `true` if it was too short. A shared file only ever grows at its end.
fn grow(mut file: &File, len: u64) -> io::Result<bool> {
    let mut at = file.seek(SeekFrom::End(0))?;
    let grows = at < len;
    while at < len {
        let piece = ByteContent::Pattern.piece(at, PIECE.min((len - at) as usize));
        file.write_all(piece)?;
        at += piece.len() as u64;
    }
    Ok(grows)
}

/// Checks that a file consists of exactly `len` bytes of `content`, starting at position `from`. The error describes
/// the difference.
pub fn check(path: &Path, content: ByteContent, from: u64, len: u64) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot read {}: {e}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if size != len {
        return Err(format!("the sink has {size} bytes instead of {len}"));
    }
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        let most = PIECE.min((len - at) as usize);
        file.read_exact(&mut buffer[..most]).map_err(failed)?;
        if let Some(place) = first_difference(content, from + at, &buffer[..most]) {
            return Err(format!("delivered a wrong byte at {} of {len}", at + place as u64));
        }
        at += most as u64;
    }
    Ok(())
}

/// Checks that a file contains exactly the first `len` bytes of another. The error describes the difference.
pub fn same(copy: &Path, source: &Path, len: u64) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot read the copy: {e}");
    let size = copy.metadata().map_err(failed)?.len();
    if size != len {
        return Err(format!("wrote {size} bytes of {len}"));
    }
    let differs = first_difference_of_files(source, copy).map_err(failed)?;
    let differs = differs.filter(|at| *at < len);
    differs.map_or(Ok(()), |at| Err(format!("delivered a wrong byte at {at}")))
}

/// Returns the first position at which two files differ, or at which the shorter one ends.
pub fn first_difference_of_files(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        for (file, bytes) in [(&a, &mut left), (&b, &mut right)] {
            bytes.clear();
            file.take(PIECE as u64).read_to_end(bytes)?;
        }
        if left != right {
            let equal = left.iter().zip(&right).take_while(|(x, y)| x == y).count();
            return Ok(Some(at + equal as u64));
        }
        if left.len() < PIECE {
            return Ok(None);
        }
        at += PIECE as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_identified_by_its_place_in_pieces_of_any_length() {
        let mut whole = vec![0; 3 << 20];
        ByteContent::Pattern.fill(5, &mut whole);
        for (at, len) in [(0, 1), (262_143, 3), (PERIOD - 6, 12), (1 << 20, 2 << 20)] {
            let mut part = vec![0; len];
            ByteContent::Pattern.fill(5 + at as u64, &mut part);
            assert_eq!(part, whole[at..at + len], "{at} {len}");
            assert_eq!(first_difference(ByteContent::Pattern, 5 + at as u64, &part), None);
            part[len - 1] ^= 1;
            let found = first_difference(ByteContent::Pattern, 5 + at as u64, &part);
            assert_eq!(found, Some(len - 1));
        }
        assert_ne!(whole[..4096], whole[4096..8192]);
        assert_eq!(first_difference(ByteContent::Zeros, 9, &[0, 0, 1]), Some(2));
    }

    #[test]
    fn files_grow_and_are_checked_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("content");
        let short = file(folder.path(), 1000).unwrap();
        let other = tempfile::tempdir_in(folder.path()).unwrap();
        assert!(Arc::ptr_eq(&short, &file(other.path(), 700_001).unwrap()));
        file(folder.path(), 10).unwrap();
        assert_eq!(check(&path, ByteContent::Pattern, 0, 700_001), Ok(()));
        assert!(
            check(&path, ByteContent::Pattern, 0, 700_000).unwrap_err().contains("700001 bytes")
        );
        assert!(check(&path, ByteContent::Zeros, 0, 700_001).unwrap_err().contains("at 0"));
        assert!(check(&path, ByteContent::Pattern, 1, 700_001).is_err());
        let (a, b) = (memfd(100).unwrap(), memfd(5000).unwrap());
        assert!(Arc::ptr_eq(&a, &b) && a.metadata().unwrap().len() >= 5000);
        let own = folder.path().join("own");
        own_file(&own, 99).unwrap();
        own_file(&own, 9).unwrap();
        assert_eq!(check(&own, ByteContent::Pattern, 0, 9), Ok(()));
    }

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let mut bytes = vec![7; 600 << 10];
        std::fs::write(&a, &bytes).unwrap();
        for at in [0, 300 << 10, bytes.len() - 1] {
            bytes[at] = 8;
            std::fs::write(&b, &bytes).unwrap();
            assert_eq!(first_difference_of_files(&a, &b).unwrap(), Some(at as u64));
            bytes[at] = 7;
        }
        std::fs::write(&b, &bytes).unwrap();
        assert_eq!(first_difference_of_files(&a, &b).unwrap(), None);
        std::fs::write(&b, &bytes[..1000]).unwrap();
        assert_eq!(first_difference_of_files(&a, &b).unwrap(), Some(1000));
        std::fs::write(&a, &bytes[..1000]).unwrap();
        assert_eq!(first_difference_of_files(&a, &b).unwrap(), None);
    }
}
