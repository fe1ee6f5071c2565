//! A pool of memory for received arrays. Freed memory returns to the pool with its pages resident, because the page
//! faults of new memory cost more than the copy.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Number of free rooms that are kept; others are returned to the system.
const MOST: usize = 4;
const ALIGN: usize = 64;

/// The free rooms.
#[derive(Clone, Default)]
pub struct RoomPool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Allocated memory, which returns to the pool when dropped.
pub struct PooledRoom {
    bytes: Vec<u8>,
    pool: RoomPool,
}

impl RoomPool {
    /// Returns memory for `len` bytes, with arbitrary contents; `None` if it cannot be allocated.
    pub fn room(&self, len: usize) -> Option<PooledRoom> {
        let needed = len.checked_add(ALIGN)?;
        // Skips a room that is more than four times too large, because a small array would occupy all of it.
        let fits = |bytes: &Vec<u8>| bytes.len() >= needed && bytes.len() / 4 <= needed;
        let bytes =
            self.free().and_then(|mut free| free.iter().position(fits).map(|at| free.remove(at)));
        Some(PooledRoom { bytes: bytes.or_else(|| zeroed(needed))?, pool: self.clone() })
    }

    /// Locks the free rooms. Returns `None` instead of waiting, because in a forked child the thread that held the lock
    /// may not exist.
    fn free(&self) -> Option<MutexGuard<'_, Vec<Vec<u8>>>> {
        match self.0.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Allocates `len` zeroed bytes; `None` if the allocation fails, in which case `vec![0; len]` would abort the process.
fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size of the layout is not 0.
    let start = unsafe { alloc_zeroed(layout) };
    // SAFETY: the memory is from the global allocator, with the layout of a vector of this capacity, and all bytes
    // are zero.
    (!start.is_null()).then(|| unsafe { Vec::from_raw_parts(start, len, len) })
}

impl PooledRoom {
    /// Returns the first `len` bytes, at a multiple of 64.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let skip = self.bytes.as_ptr().align_offset(ALIGN);
        &mut self.bytes[skip..skip + len]
    }
}

impl Drop for PooledRoom {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        let Some(mut free) = self.pool.free() else { return };
        free.push(bytes);
        // Frees the oldest room, so that rooms of sizes no longer in use do not stay. Unlocks first, because the system
        // takes long to free a large room.
        let oldest = (free.len() > MOST).then(|| free.remove(0));
        drop(free);
        drop(oldest);
    }
}
