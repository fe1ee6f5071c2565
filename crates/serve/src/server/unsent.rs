//! What the kernel may keep for clients that read nothing. A socket holds megabytes, and thousands of such clients use
//! up what the kernel has for all connections of the machine: then nobody is answered.

use std::fs;

/// What the kernel has, and what one socket may take of it.
#[derive(Clone, Copy, Debug)]
pub struct Unsent {
    /// Bytes of all sockets, from which on the kernel is sparing.
    all: u64,
    /// Bytes of one.
    each: u64,
}

// Of all that the kernel has, an eighth is shared out anew to every client that comes: as those who came before had larger
// shares, and memory is more than the bytes in it, all together stay below the whole.
const SHARE: u64 = 8;
/// Less would make a client wait that reads.
const LEAST: u64 = 64 << 10;

impl Unsent {
    /// Asks the kernel; where it says nothing, nothing is limited.
    pub fn find() -> Option<Self> {
        let number = |path: &str, at: usize| -> Option<u64> {
            fs::read_to_string(path).ok()?.split_whitespace().nth(at)?.parse().ok()
        };
        let pages = number("/proc/sys/net/ipv4/tcp_mem", 1)?;
        let each = number("/proc/sys/net/ipv4/tcp_wmem", 2)?;
        Some(Self { all: pages.saturating_mul(rustix::param::page_size() as u64), each })
    }

    /// The limit for the client that is the last of so many, if it needs one.
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
