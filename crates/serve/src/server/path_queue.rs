//! A packed queue of paths: 2 bytes plus the path per entry.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A queue of paths.
#[derive(Debug, Default)]
pub struct PathQueue {
    bytes: Vec<u8>,
    read: usize,
}

// Number of consumed bytes that are kept before the rest is moved to the front.
const KEPT: usize = 64 << 10;

impl PathQueue {
    /// Appends a path. Returns `false` if it is longer than 65,535 bytes.
    pub fn push(&mut self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        let Ok(len) = u16::try_from(path.len()) else { return false };
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(path);
        true
    }

    /// Removes and returns the first path.
    pub fn pop(&mut self) -> Option<PathBuf> {
        let (len, rest) = self.bytes.get(self.read..)?.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let path = PathBuf::from(OsStr::from_bytes(rest.get(..len)?));
        self.read += 2 + len;
        if self.read == self.bytes.len() {
            *self = Self::default();
        } else if self.read > KEPT && self.read > self.bytes.len() / 2 {
            self.bytes.drain(..self.read);
            self.bytes.shrink_to_fit();
            self.read = 0;
        }
        Some(path)
    }

    /// Returns the memory of the queue, in bytes.
    pub fn held(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_out_in_the_order_they_went_in() {
        let mut queue = PathQueue::default();
        let path = |n: usize| PathBuf::from("x".repeat(n % 300)).join(n.to_string());
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..50 {
            for _ in 0..200 {
                assert!(queue.push(&path(pushed)));
                pushed += 1;
            }
            for _ in 0..(if round < 25 { 100 } else { 300 }) {
                assert_eq!(queue.pop(), Some(path(popped)));
                popped += 1;
            }
        }
        assert_eq!((popped, queue.pop(), queue.held()), (pushed, None, 0));
        assert!(queue.push(Path::new("")));
        assert_eq!(queue.pop(), Some(PathBuf::new()));
        assert!(!queue.push(Path::new(&"x".repeat(70_000))));
    }
}
