//! Small answers on a byte stream that are held back while further requests wait, so that one write sends many. Over
//! ssh every write becomes a packet that is encrypted and decrypted. Sockets have `MSG_MORE` for this.

use std::os::fd::AsFd;

use thalweg_sys::{Errno, io};

/// Bytes of complete answers that are not written yet.
#[derive(Debug, Default)]
pub struct HeldAnswers {
    bytes: Vec<u8>,
    written: usize,
}

/// Largest number of bytes that are held back.
const MOST: usize = 64 << 10;

impl HeldAnswers {
    /// Returns `true` if this many more bytes can be held back.
    pub fn has_room(&self, count: usize) -> bool {
        self.bytes.len() + count <= MOST
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes all bytes. Fails with `EAGAIN` if the stream accepts no more at the moment.
    pub fn write(&mut self, stream: impl AsFd) -> Result<(), Errno> {
        while self.written < self.bytes.len() {
            match io::write(&stream, &self.bytes[self.written..]) {
                // A stream that accepts nothing without an error would cause an endless loop.
                Ok(0) => return Err(Errno::IO),
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        *self = Self::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::net::UnixStream};

    #[test]
    fn held_bytes_are_written_once_and_in_order() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut held = HeldAnswers::default();
        held.push(b"one");
        assert!(held.has_room(MOST - 3) && !held.has_room(MOST - 2));
        held.push(b"two");
        held.write(&near).unwrap();
        assert!(held.bytes.is_empty());
        held.write(&near).unwrap();
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"onetwo");
    }

    #[test]
    fn a_full_stream_keeps_the_rest() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut held = HeldAnswers::default();
        let bytes: Vec<u8> = (0..4 << 20).map(|n: u32| n as u8).collect();
        held.push(&bytes);
        assert_eq!(held.write(&near), Err(Errno::AGAIN));
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        near.set_nonblocking(false).unwrap();
        held.write(&near).unwrap();
        drop(near);
        assert_eq!(reader.join().unwrap(), bytes);
    }
}
