//! The processor's time-stamp counter.

/// Returns the time-stamp counter. To be cheap, it is read without a serializing instruction. Values of different
/// processors cannot be compared. `None` if the architecture has no such counter.
#[inline]
pub fn cycle_counter() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        #[allow(unused_unsafe)]
        // SAFETY: every x86_64 has the instruction. It raises SIGSEGV only if the process has requested that
        // (PR_SET_TSC).
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_counts_where_there_is_one() {
        let Some(first) = cycle_counter() else { return };
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_ne!(cycle_counter(), Some(first));
    }
}
