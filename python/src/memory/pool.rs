//! Own memory that received arrays are copied to. It comes back when the array is gone, and is then resident: memory
//! used for the first time costs more than the copy.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
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
    /// Room for `len` bytes; `None` where there is not so much memory. What is in it is whatever was there before.
    pub fn room(&self, len: usize) -> Option<Room> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = len.checked_add(ALIGN)?;
        // Not one far too large: a small array would keep it.
        let fits = |bytes: &Vec<u8>| bytes.len() >= needed && bytes.len() / 4 <= needed;
        let bytes = free.iter().position(fits).map(|at| free.remove(at));
        drop(free);
        Some(Room { bytes: bytes.or_else(|| zeroed(needed))?, pool: self.clone() })
    }
}

/// As `vec![0; len]`, which ends the process where the system refuses.
fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) };
    // SAFETY: from the global allocator, by the layout of a vector of this capacity; all its bytes are zeros.
    (!start.is_null()).then(|| unsafe { Vec::from_raw_parts(start, len, len) })
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
