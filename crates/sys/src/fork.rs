//! Detects whether this process is a forked child. This takes a load from memory instead of the
//! system call getpid(2).

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Identifies the process in which it was created.
#[derive(Clone, Copy, Debug)]
pub struct ForkMark {
    page: Option<&'static AtomicU32>,
    process: u32,
}

impl ForkMark {
    /// Creates a mark of this process.
    pub fn here() -> Self {
        let (page, process) = (page(), std::process::id());
        if let Some(page) = page {
            page.store(process, Ordering::Relaxed);
        }
        Self { page, process }
    }

    /// Returns `true` in the process in which the mark was created, and `false` in a forked child.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.page {
            Some(page) => page.load(Ordering::Relaxed) == self.process,
            None => std::process::id() == self.process,
        }
    }

    /// Returns the id of the process in which the mark was created.
    pub fn process(&self) -> u32 {
        self.process
    }
}

/// Returns a page that the kernel zeroes in every child (MADV_WIPEONFORK, Linux 4.14), whichever
/// call creates the child. If a child creates a mark, it writes its own id into its page, which
/// differs from its parent's id.
fn page() -> Option<&'static AtomicU32> {
    static PAGE: OnceLock<Option<usize>> = OnceLock::new();
    let address = (*PAGE.get_or_init(|| {
        let len = rustix::param::page_size();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let page =
            unsafe { rustix::mm::mmap_anonymous(none, len, protection, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the page just mapped; the advice changes nothing in this process.
        unsafe { rustix::mm::madvise(page, len, Advice::LinuxWipeOnFork) }.ok()?;
        Some(page.expose_provenance())
    }))?;
    // SAFETY: mapped above, zeroed, page-aligned, never unmapped, and accessed only as an atomic.
    Some(unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_somewhere_else() {
        let mark = ForkMark::here();
        assert!(mark.is_here());
        assert_eq!(mark.process(), std::process::id());
        // SAFETY: the child does not allocate and takes no lock: it makes a load, a store and
        // _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inherited = mark.is_here();
            let fresh = ForkMark::here();
            let fine = !inherited && fresh.is_here() && !mark.is_here();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = 0;
        // SAFETY: `status` is written by the kernel.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(mark.is_here());
    }
}
