//! Own memory that received arrays are copied to. It comes back when the array is gone, and is then resident: memory
//! used for the first time costs more than the copy.

use std::sync::{Arc, Mutex, PoisonError};

/// Rooms kept for later; more are given back to the system.
const MOST: usize = 4;
const ALIGN: usize = 64;

/// Rooms that are free.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Memory of its own, back in the pool when dropped.
pub struct Room {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    /// Room for `len` bytes. What is in it is whatever was there before.
    pub fn room(&self, len: usize) -> Room {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = len + ALIGN;
        // Not one far too large: a small array would keep it.
        let fits = |bytes: &Vec<u8>| bytes.len() >= needed && bytes.len() / 4 <= needed;
        let bytes = free.iter().position(fits).map(|at| free.remove(at));
        drop(free);
        Room { bytes: bytes.unwrap_or_else(|| vec![0; needed]), pool: self.clone() }
    }
}

impl Room {
    /// Its first `len` bytes, which begin at a multiple of 64.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let skip = self.bytes.as_ptr().align_offset(ALIGN);
        &mut self.bytes[skip..skip + len]
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(std::mem::take(&mut self.bytes));
        if free.len() > MOST {
            // The oldest: sizes that are asked for no more do not stay.
            free.remove(0);
        }
    }
}
