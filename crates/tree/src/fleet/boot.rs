//! The boot of a worker's machine, as a line of the worker's journal. The line applies to the task lines that follow
//! it.
//!
//! When a machine loses power, data that its workers wrote may be lost even if their journals record it. If a later
//! worker of that machine records another boot, the machine was restarted. Tasks that were recorded before the restart
//! then count only if they were synced.

use std::time::SystemTime;
use xxhash_rust::xxh3::xxh3_64;

use super::line::{LINE, seal, unseal};
use crate::journal::boot_id;

/// A boot of a machine, with the start time and sync mode of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerBoot {
    /// Hash of the host name and the machine-id(5).
    pub machine: u32,
    /// Hash of the boot ID; 0 if the kernel does not report one.
    pub boot: u64,
    /// Start of the worker, in seconds since 1970 by its own clock. Of two boots of one machine, the one with the later
    /// start is the current one.
    pub began: u64,
    /// `true` if every task is on stable storage before it is recorded.
    pub is_synced: bool,
}

impl WorkerBoot {
    /// Returns the boot of this process.
    pub fn of_this(is_synced: bool) -> Self {
        let mut machine = rustix::system::uname().nodename().to_bytes().to_vec();
        // Some machines have no machine-id, and several may have one host name, so the hash covers both.
        machine.extend(std::fs::read("/etc/machine-id").unwrap_or_default());
        let id = boot_id();
        let boot = if id.is_empty() { 0 } else { xxh3_64(id.as_bytes()) };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = since.map_or(0, |since| since.as_secs());
        Self { machine: xxh3_64(&machine) as u32, boot, began, is_synced }
    }

    /// Returns the line for a journal of this plan.
    pub fn to_bytes(self, plan: u64) -> [u8; LINE] {
        let Self { machine, boot, began, is_synced } = self;
        let is_synced = u8::from(is_synced);
        seal(&format!("boot {machine:08x} {boot:016x} {began:016x} {is_synced}   "), plan)
    }

    /// Parses a line. Returns `None` if it is torn, modified, of another plan, or not a boot line.
    pub fn parse(line: &[u8], plan: u64) -> Option<Self> {
        let mut words = unseal(line, plan)?.strip_prefix("boot ")?.split(' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (machine, boot, began) = (number()? as u32, number()?, number()?);
        Some(Self { machine, boot, began, is_synced: words.next()? == "1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::line::JournalLine;

    #[test]
    fn a_line_comes_back_and_any_other_byte_makes_it_none() {
        let boot =
            WorkerBoot { machine: u32::MAX, boot: u64::MAX, began: u64::MAX, is_synced: true };
        let bytes = boot.to_bytes(7);
        assert_eq!(WorkerBoot::parse(&bytes, 7), Some(boot));
        assert_eq!((WorkerBoot::parse(&bytes, 8), JournalLine::parse(&bytes, 7)), (None, None));
        let task = JournalLine { task: 1, bytes: 2, what: 3, at: 4 }.to_bytes(7);
        assert_eq!(WorkerBoot::parse(&task, 7), None);
        for at in 0..LINE {
            assert_eq!(WorkerBoot::parse(&bytes[..at], 7), None);
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(WorkerBoot::parse(&other, 7), None, "byte {at}");
        }
    }
}
