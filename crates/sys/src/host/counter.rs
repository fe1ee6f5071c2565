//! The processor's own counter of time.

/// The time-stamp counter, as a program reads it that wants it cheap: with nothing that would make
/// the processor wait for what came before. Of no use across processors. `None` where there is none.
#[inline]
pub fn cycle_counter() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        #[allow(unused_unsafe)]
        // SAFETY: every x86_64 has the instruction. Where the kernel forbids it (PR_SET_TSC) it is
        // SIGSEGV, as asked for.
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
