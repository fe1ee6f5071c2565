//! Decides whether size and times prove that an earlier run finished a file.
//!
//! The page cache is evidence only for the boot in which it was written. A power failure may preserve the size and
//! times of a file but lose its data (delayed allocation, `ftruncate`, `fallocate`). A file of an earlier boot is
//! therefore compared with its source, unless a record says that it was synced.

use rustix::{
    fs::Stat,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::{
    identity::ctime,
    journal::Journal,
    times::{self, Time},
};

/// The evidence that the files which an earlier run left in a directory are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteEvidence {
    /// `true` if files changed in this boot are intact, because the page cache still has their data.
    is_of_this_boot: bool,
    /// Every file that was last changed before this moment is on stable storage.
    synced_before: Option<Time>,
}

impl WriteEvidence {
    /// Evidence for a directory with its final name: size and times prove the contents of files changed in this boot.
    pub const THIS_BOOT: Self = Self { is_of_this_boot: true, synced_before: None };

    /// Returns the evidence for an adopted staging directory, from its journal. Without a journal, nothing is proven.
    pub fn of_stage(journal: Option<&Journal>) -> Self {
        Self {
            is_of_this_boot: journal.is_some_and(Journal::is_of_this_boot),
            synced_before: journal.and_then(|journal| journal.synced_before),
        }
    }

    /// Returns `true` if size and times of this file prove that all of it was written. Otherwise it must be compared.
    pub fn vouches_for(&self, file: &Stat) -> bool {
        // File systems may store a time rounded down, so the latest moment that it can stand for is compared.
        let is_before =
            |synced: Time| times::latest_change(file).is_some_and(|change| change < synced);
        let is_synced = self.synced_before.is_some_and(is_before);
        is_synced || (self.is_of_this_boot && Boot::now().has_seen(ctime(file)))
    }
}

/// Returns `true` if a file or directory was last changed before this boot. A time in the future may come from the
/// clock of another machine and proves nothing.
pub(crate) fn is_from_before_this_boot(file: &Stat) -> bool {
    ctime(file) < Boot::now().began
}

/// The current boot, according to the clocks of this process. Both clocks are read each time, because the wall clock
/// may be set. A time namespace may have another `CLOCK_BOOTTIME` (time_namespaces(7)).
struct Boot {
    began: Time,
    now: Time,
}

impl Boot {
    fn now() -> Self {
        let (now, up) = (clock_gettime(ClockId::Realtime), clock_gettime(ClockId::Boottime));
        let began = now.checked_sub(up).unwrap_or(now);
        Self { began: moment(began), now: moment(now) }
    }

    /// Returns `true` if the change happened in this boot. A time after `now` comes from another clock and proves
    /// nothing.
    fn has_seen(&self, changed: Time) -> bool {
        self.began <= changed && changed <= self.now
    }
}

/// Returns the wall clock time that the kernel uses for change times.
pub(crate) fn now() -> Time {
    // File systems use the coarse clock, which may be one tick late.
    moment(clock_gettime(ClockId::RealtimeCoarse))
}

fn moment(time: Timespec) -> Time {
    (time.tv_sec, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn a_file_written_now_is_of_this_boot_and_one_of_another_time_is_not() {
        let file = tempfile::tempfile().unwrap();
        let mut stat = fstat(&file).unwrap();
        assert!(WriteEvidence::THIS_BOOT.vouches_for(&stat));
        assert!(!WriteEvidence::of_stage(None).vouches_for(&stat));
        stat.st_ctime += 100;
        assert!(!WriteEvidence::THIS_BOOT.vouches_for(&stat), "from the future");
        stat.st_ctime = Boot::now().began.0 - 10;
        assert!(!WriteEvidence::THIS_BOOT.vouches_for(&stat), "before this boot");
        let synced = WriteEvidence { is_of_this_boot: false, synced_before: Some(now()) };
        assert!(synced.vouches_for(&stat), "synced in an earlier boot");
    }
}
