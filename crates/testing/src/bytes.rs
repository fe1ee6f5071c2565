//! Bytes that show their origin. Every eight bytes depend on the file and the offset, so that lost, repeated, moved or
//! wrong bytes are noticed, and bytes of another file, too.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::Path,
};

const BLOCK: usize = 1 << 20;

/// Fills the buffer with the bytes of `seed` from `offset` on.
pub fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    let first = (offset % 8) as usize;
    let (head, body) = buffer.split_at_mut(buffer.len().min((8 - first) % 8));
    head.copy_from_slice(&word(seed, offset / 8).to_le_bytes()[first..][..head.len()]);
    for (n, place) in (offset.div_ceil(8)..).zip(body.chunks_mut(8)) {
        place.copy_from_slice(&word(seed, n).to_le_bytes()[..place.len()]);
    }
}

/// `splitmix64`. It is a bijection, so each word of a file is different.
fn word(seed: u64, n: u64) -> u64 {
    let mut z = n.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the first `len` bytes of `seed`.
pub fn of(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, 0, &mut bytes);
    bytes
}

/// Makes a file of `len` bytes of `seed`.
///
/// # Panics
/// If the file cannot be written.
pub fn write(path: &Path, seed: u64, len: u64) {
    let mut file = File::create(path).expect("a new file");
    let mut buffer = vec![0; BLOCK];
    let mut at = 0;
    while at < len {
        let count = (len - at).min(BLOCK as u64) as usize;
        fill(seed, at, &mut buffer[..count]);
        file.write_all(&buffer[..count]).expect("room for the bytes");
        at += count as u64;
    }
}

/// Writes `len` bytes of `seed` into a file at `offset`, and keeps the rest.
///
/// # Panics
/// If the file does not exist or cannot be written.
pub fn write_at(path: &Path, seed: u64, offset: u64, len: usize) {
    let mut bytes = vec![0; len];
    fill(seed, offset, &mut bytes);
    existing(path).write_all_at(&bytes, offset).expect("room for the bytes");
}

/// Changes one byte, and restores the modification time.
///
/// # Panics
/// If the file does not exist or cannot be written.
pub fn spoil(path: &Path, at: u64) {
    let file = existing(path);
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    file.write_all_at(b"X", at).expect("room for a byte");
    file.set_modified(modified.expect("a time")).expect("the time again");
}

fn existing(path: &Path) -> File {
    File::options().write(true).open(path).expect("an existing file")
}

/// Checks that a file has exactly the first `len` bytes of `seed`.
///
/// # Panics
/// If the file differs (the message has the place), or cannot be read.
#[track_caller]
pub fn expect(path: &Path, seed: u64, len: u64) {
    if let Err(difference) = compare(path, seed, len) {
        panic!("{}: {difference}", path.display());
    }
}

/// Returns `true` if a file has exactly the first `len` bytes of `seed`.
pub fn is(path: &Path, seed: u64, len: u64) -> bool {
    compare(path, seed, len).is_ok()
}

/// Returns the number of bytes at the start of a file that are those of `seed`.
pub fn prefix(path: &Path, seed: u64) -> u64 {
    let Ok(mut file) = File::open(path) else { return 0 };
    let (mut found, mut wanted) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    loop {
        let count = file.read(&mut found).unwrap_or(0);
        fill(seed, at, &mut wanted[..count]);
        let same = found[..count].iter().zip(&wanted).take_while(|(f, w)| f == w).count();
        at += same as u64;
        if same < count || count == 0 {
            return at;
        }
    }
}

fn compare(path: &Path, seed: u64, len: u64) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size != len {
        return Err(format!("{size} bytes where {len} were expected"));
    }
    let (mut found, mut wanted) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while at < len {
        let count = (len - at).min(BLOCK as u64) as usize;
        file.read_exact(&mut found[..count]).map_err(|error| error.to_string())?;
        fill(seed, at, &mut wanted[..count]);
        if found[..count] != wanted[..count] {
            let first = found.iter().zip(&wanted).position(|(f, w)| f != w).unwrap_or(0);
            return Err(format!("differs at byte {}", at + first as u64));
        }
        at += count as u64;
    }
    Ok(())
}
