//! Resource usage of processes and threads, and the limit of open files.

use crate::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::mem::MaybeUninit;
use std::ops::Add;
use std::time::Duration;

/// Resource usage, by `getrusage(2)`. The kernel counts total CPU time exactly, but may divide it into user and system
/// time by sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub sys: Duration,
    /// Page faults without a read from disk.
    pub minor_faults: u64,
    /// Page faults with a read from disk.
    pub major_faults: u64,
    /// Disk reads that the process or thread started, in units of 512 bytes. Page-cache hits do not count.
    pub blocks_read: u64,
    /// Number of times that the process or thread gave up the processor, mostly to wait.
    pub voluntary_switches: u64,
    /// Number of times that the process or thread was preempted.
    pub involuntary_switches: u64,
}

/// The sum of the usage of two processes.
impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            sys: self.sys + other.sys,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            blocks_read: self.blocks_read + other.blocks_read,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }
}

impl Usage {
    /// Returns the usage of all threads of this process, including those that ended.
    pub fn now_process() -> Self {
        Self::now(libc::RUSAGE_SELF)
    }

    /// Returns the usage of the calling thread.
    pub fn now_thread() -> Self {
        Self::now(libc::RUSAGE_THREAD)
    }

    /// Returns the usage of children that ended and were waited for, and of their children.
    pub fn now_children() -> Self {
        Self::now(libc::RUSAGE_CHILDREN)
    }

    /// Returns the usage since `earlier`. A field that decreased is 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            sys: self.sys.saturating_sub(earlier.sys),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            blocks_read: self.blocks_read.saturating_sub(earlier.blocks_read),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }

    /// Returns user and system time together.
    pub fn cpu(&self) -> Duration {
        self.user + self.sys
    }

    fn now(who: libc::c_int) -> Self {
        let mut used = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call writes one rusage. It fails only for an unknown `who`, and then leaves zeroes.
        unsafe { libc::getrusage(who, used.as_mut_ptr()) };
        // SAFETY: zeroes are a valid rusage.
        let used = unsafe { used.assume_init() };
        Self::of(&used)
    }

    pub(crate) fn of(used: &libc::rusage) -> Self {
        Self {
            user: duration(used.ru_utime),
            sys: duration(used.ru_stime),
            minor_faults: used.ru_minflt as u64,
            major_faults: used.ru_majflt as u64,
            blocks_read: used.ru_inblock as u64,
            voluntary_switches: used.ru_nvcsw as u64,
            involuntary_switches: used.ru_nivcsw as u64,
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// Bytes allocated by the C library's allocator. It counts in 32 bits, so only differences below 2 GiB are meaningful.
#[derive(Clone, Copy, Debug)]
pub struct Heap(u32);

impl Heap {
    /// Returns the current count; `None` if the C library does not report it.
    pub fn now() -> Option<Self> {
        #[cfg(target_env = "gnu")]
        {
            // SAFETY: takes no arguments and returns numbers by value; it locks the data it reads.
            let told = unsafe { libc::mallinfo() };
            Some(Self((told.uordblks as u32).wrapping_add(told.hblkhd as u32)))
        }
        #[cfg(not(target_env = "gnu"))]
        None
    }

    /// Returns the increase since `earlier`, in bytes; 0 if the count decreased.
    pub fn grown_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.wrapping_sub(earlier.0) as i32).unwrap_or(0)
    }
}

/// Raises the soft limit of open files to the hard one. Returns the new limit; `None` means no limit. Do not use it in
/// processes that use `select(2)`.
pub fn raise_open_files() -> Result<Option<u64>, Errno> {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    Ok(hard)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn work_shows_in_the_thread_and_in_the_process() {
        let (thread, process) = (Usage::now_thread(), Usage::now_process());
        let page = rustix::param::page_size();
        let mut memory = crate::map::Map::anonymous(64 * page, false).unwrap();
        memory.bytes_mut().unwrap().iter_mut().step_by(page).for_each(|byte| *byte = 1);
        std::thread::sleep(Duration::from_millis(2));
        let used = Usage::now_thread().since(&thread);
        assert!(used.minor_faults > 0 && used.voluntary_switches > 0, "{used:?}");
        let all = Usage::now_process().since(&process);
        assert!(all.minor_faults >= used.minor_faults);
        assert_eq!(thread.since(&Usage::now_thread()).minor_faults, 0);
        assert_eq!(used.cpu(), used.user + used.sys);
    }

    #[test]
    fn what_is_allocated_shows_until_it_is_freed() {
        let Some(before) = Heap::now() else { return };
        // 64 MiB are much more than other tests of this process allocate and free in the meantime.
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(Heap::now().unwrap().grown_since(before) >= 32 << 20);
        drop(held);
        assert!(Heap::now().unwrap().grown_since(before) < 32 << 20);
        assert_eq!(Heap(5).grown_since(Heap(u32::MAX)), 6);
        assert_eq!(Heap(5).grown_since(Heap(6)), 0);
    }

    #[test]
    fn children_count_once_waited_for() {
        let before = Usage::now_children();
        std::process::Command::new("true").status().unwrap();
        assert!(Usage::now_children().since(&before).minor_faults > 0);
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let granted = raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, granted);
    }
}
