//! What the structs of options have in common: their size comes first, and some words mean the same
//! in all of them.

use std::time::{Duration, Instant};
use thalweg_channel::Wait;
use thalweg_core::Guarantees;

use crate::error::Failure;

/// `TW_STABLE`, `TW_PRIVATE`, `TW_DURABLE`
const STABLE: u32 = 1;
const PRIVATE: u32 = 2;
const DURABLE: u32 = 4;

/// The options, if there are any; `init` is the name of the macro to begin with.
///
/// # Safety
/// `options` is null, or points to as many bytes as its first field, a `size_t`, says.
pub(crate) unsafe fn read<T: Copy>(options: *const T, init: &str) -> Result<Option<T>, Failure> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and every version of the struct begins with its size.
    let size = unsafe { options.cast::<usize>().read() };
    // The first version: a smaller one was never handed out, a larger one only adds.
    if size < size_of::<T>() {
        return Err(Failure::usage(format!("options.size is {size}: begin with {init}")));
    }
    // SAFETY: as large as it has to be, by the test.
    Ok(Some(unsafe { options.read() }))
}

/// `needs`
pub(crate) fn guarantees(needs: u32) -> Result<Guarantees, Failure> {
    known_bits("needs", needs, STABLE | PRIVATE | DURABLE)?;
    let has = |bit| needs & bit != 0;
    Ok(Guarantees { stable: has(STABLE), private: has(PRIVATE), durable: has(DURABLE) })
}

/// Refuses bits that mean nothing yet.
pub(crate) fn known_bits(field: &str, bits: u32, known: u32) -> Result<(), Failure> {
    if bits & !known == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!("options.{field} has unknown bits: {bits:#x}")))
}

/// `wait` and `spin_ns`
pub(crate) fn wait(wait: u32, spin_ns: u64) -> Result<Wait, Failure> {
    match wait {
        0 if spin_ns == 0 => Ok(Wait::HYBRID),
        0 => Ok(Wait::Hybrid { spin: Duration::from_nanos(spin_ns) }),
        1 => Ok(Wait::Spin),
        2 => Ok(Wait::Block),
        other => Err(Failure::usage(format!("options.wait is {other}, which is no tw_wait"))),
    }
}

/// `TW_NOW`
pub(crate) const NOW: i64 = 0;

/// When a wait of `timeout_ns` ends; `None` is never.
pub(crate) fn deadline(timeout_ns: i64) -> Option<Instant> {
    let ahead = u64::try_from(timeout_ns).ok()?;
    Instant::now().checked_add(Duration::from_nanos(ahead))
}
