//! Limits the unsent data in the kernel for clients that read nothing. A socket can hold megabytes, and thousands of
//! such clients would use up the TCP memory of the whole machine, so that no connection could proceed.

use std::fs;

/// TCP memory of the kernel, and the maximum that one socket can take.
#[derive(Clone, Copy, Debug)]
pub struct Unsent {
    /// Total bytes of all sockets above which the kernel limits memory (`tcp_mem`, second value).
    all: u64,
    /// Maximum bytes of one socket (`tcp_wmem`, third value).
    each: u64,
}

// Each new client gets an equal share of an eighth of the total. The divisor is 8 because earlier clients got larger
// shares, and because the kernel uses more memory than the bytes that it stores. All clients together then stay below
// the total.
const SHARE: u64 = 8;
/// Minimum limit in bytes. A smaller one would slow down clients that do read.
const LEAST: u64 = 64 << 10;

impl Unsent {
    /// Reads the limits from /proc. Returns `None` if they are not available; nothing is limited then.
    pub fn find() -> Option<Self> {
        let number = |path: &str, at: usize| -> Option<u64> {
            fs::read_to_string(path).ok()?.split_whitespace().nth(at)?.parse().ok()
        };
        let pages = number("/proc/sys/net/ipv4/tcp_mem", 1)?;
        let each = number("/proc/sys/net/ipv4/tcp_wmem", 2)?;
        Some(Self { all: pages.saturating_mul(rustix::param::page_size() as u64), each })
    }

    /// Returns the limit for the newest of `clients` clients, or `None` if it needs no limit.
    pub fn of(self, clients: usize) -> Option<u32> {
        let share = (self.all / SHARE / clients.max(1) as u64).max(LEAST);
        if share < self.each { u32::try_from(share).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_clients_are_not_limited_and_all_together_stay_below_the_whole() {
        let unsent = Unsent { all: 1 << 30, each: 4 << 20 };
        assert_eq!(unsent.of(1), None);
        let held = |n| unsent.of(n).map_or(unsent.each, u64::from);
        assert!((1..1000).map(held).sum::<u64>() < unsent.all);
        assert_eq!(unsent.of(1_000_000), Some(LEAST as u32));
    }
}
