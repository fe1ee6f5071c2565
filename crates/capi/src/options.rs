//! Common code for the options structs. Their first field is their size, and several of them have the fields `needs`,
//! `wait` and `spin_ns`.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};
use thalweg_channel::Wait;
use thalweg_core::Guarantees;

use crate::error::CallFailure;

/// Values of `TW_STABLE`, `TW_PRIVATE` and `TW_DURABLE`.
const STABLE: u32 = 1;
const PRIVATE: u32 = 2;
const DURABLE: u32 = 4;

/// Reads the caller's options; `None` if `options` is null. `init` is the name of the initialiser macro, for messages.
/// `earlier` contains the sizes of earlier versions of the struct. Fields that the caller's version lacks are set to
/// zero.
///
/// # Safety
/// `options` must be null, or point to as many bytes as its first field, a `size_t`, states. Zeros must be valid in all
/// fields of `T` beyond the smallest size in `earlier`.
pub(crate) unsafe fn read<T: Copy>(
    options: *const T,
    init: &str,
    earlier: &[usize],
) -> Result<Option<T>, CallFailure> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: Not null, and every version of the struct begins with its size.
    let size = unsafe { options.cast::<usize>().read() };
    // No version is smaller than the first one. A struct larger than `T` is from a newer header and has additional
    // fields.
    let versions = earlier.iter().copied().chain([size_of::<T>()]);
    let Some(known) = versions.filter(|version| *version <= size).max() else {
        return Err(CallFailure::usage(format!(
            "options.size is {size}: initialize the options with {init}"
        )));
    };
    let mut all = MaybeUninit::<T>::zeroed();
    // SAFETY: The caller provides `size` bytes, and `all` has the size of a `T`. `known` exceeds neither.
    unsafe { options.cast::<u8>().copy_to_nonoverlapping(all.as_mut_ptr().cast(), known) };
    // SAFETY: `all` contains the fields of one version, and zeros elsewhere, which the caller guarantees to be valid.
    Ok(Some(unsafe { all.assume_init() }))
}

/// Converts the field `needs`.
pub(crate) fn guarantees(needs: u32) -> Result<Guarantees, CallFailure> {
    known_bits("needs", needs, STABLE | PRIVATE | DURABLE)?;
    let has = |bit| needs & bit != 0;
    Ok(Guarantees { stable: has(STABLE), private: has(PRIVATE), durable: has(DURABLE) })
}

/// Fails if `bits` contains bits that are not in `known`.
pub(crate) fn known_bits(field: &str, bits: u32, known: u32) -> Result<(), CallFailure> {
    if bits & !known == 0 {
        return Ok(());
    }
    Err(CallFailure::usage(format!("options.{field} has unknown bits: {bits:#x}")))
}

/// Converts the fields `wait` and `spin_ns`.
pub(crate) fn wait(wait: u32, spin_ns: u64) -> Result<Wait, CallFailure> {
    match wait {
        0 if spin_ns == 0 => Ok(Wait::HYBRID),
        0 => Ok(Wait::Hybrid { spin: Duration::from_nanos(spin_ns) }),
        1 => Ok(Wait::Spin),
        2 => Ok(Wait::Block),
        other => Err(CallFailure::usage(format!("options.wait is {other}, not a tw_wait"))),
    }
}

/// Value of `TW_FOREVER`. It is not negative, because a late caller that computes `deadline - now` gets a negative
/// number.
const FOREVER: i64 = i64::MAX;

/// Returns the time at which a wait of `timeout_ns` ends; `None` means no limit. A negative timeout is already over.
pub(crate) fn deadline(timeout_ns: i64) -> Option<Instant> {
    if timeout_ns == FOREVER {
        return None;
    }
    let ahead = u64::try_from(timeout_ns).unwrap_or(0);
    Instant::now().checked_add(Duration::from_nanos(ahead))
}

/// Returns `true` if the call must not wait, because the timeout is `TW_NOW` or is already over.
pub(crate) fn is_now(timeout_ns: i64) -> bool {
    timeout_ns <= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Grown {
        size: usize,
        first: u64,
        second: u64,
    }

    #[test]
    fn a_caller_that_is_late_does_not_wait() {
        for late in [i64::MIN, i64::MIN + 1, -1_000_000_000, -2, -1, 0] {
            assert!(
                is_now(late) && deadline(late).is_some_and(|end| end <= Instant::now()),
                "{late}"
            );
        }
        assert!(!is_now(1) && deadline(i64::MAX - 1) > Some(Instant::now()));
        assert_eq!(deadline(FOREVER), None);
    }

    #[test]
    fn of_a_struct_only_the_fields_of_its_version_are_read() {
        let whole = Grown { size: 0, first: 7, second: 9 };
        let read = |size, earlier: &[usize]| {
            let given = Grown { size, ..whole };
            // SAFETY: At most a whole struct is read, and zeros are valid numbers.
            let read = unsafe { read(&raw const given, "INIT", earlier) };
            read.map(|found| found.map(|found| (found.first, found.second))).ok().flatten()
        };
        let (first, own) = (16, size_of::<Grown>());
        assert_eq!(read(own, &[first]), Some((7, 9)));
        assert_eq!(read(own + 8, &[first]), Some((7, 9)), "of a later header");
        assert_eq!(read(first, &[first]), Some((7, 0)));
        assert_eq!(read(first + 1, &[first]), Some((7, 0)), "part of a field is none of it");
        assert_eq!(read(first - 1, &[first]), None);
        assert_eq!(read(first, &[]), None);
    }
}
