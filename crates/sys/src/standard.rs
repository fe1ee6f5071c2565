//! Detects standard descriptors that were closed when the process was started.
//!
//! Before `main`, Rust's start-up code opens `/dev/null` in place of each closed standard descriptor. Writes to a
//! closed standard output would then be lost without an error. This module therefore checks the descriptors before the
//! start-up code runs.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bit `n` is set if descriptor `n` (0, 1 or 2) was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// A constructor: the loader calls it before Rust's start-up code, while there is only one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = look;

extern "C" fn look() {
    for fd in 0..3 {
        // SAFETY: takes numbers and changes nothing. For a descriptor that is not open, it returns an error, which this
        // function needs.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Returns `true` if `fd` is 0, 1 or 2 and was closed when the process was started. If it is open now, the process that
/// started this one did not choose that file.
pub fn was_closed(fd: RawFd) -> bool {
    // Without this use, a linker may omit the constructor.
    std::hint::black_box(&raw const CONSTRUCTOR);
    (0..3).contains(&fd) && CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Command, Stdio};

    const CHILD: &str = "THALWEG_STANDARD_CHILD";

    /// Runs as a separate process, started by the test below.
    #[test]
    fn standard_child() {
        let Ok(closed) = std::env::var(CHILD) else { return };
        for fd in 0..3 {
            assert_eq!(was_closed(fd), closed.contains(&fd.to_string()), "{fd} of {closed:?}");
        }
        assert!(!was_closed(3) && !was_closed(-1));
    }

    #[test]
    fn a_standard_descriptor_that_was_closed_at_the_start_is_known() {
        for (redirection, closed) in [("", ""), ("<&-", "0"), (">&-", "1"), ("<&- >&- 2>&-", "012")]
        {
            let line = format!("exec \"$0\" --exact standard::tests::standard_child {redirection}");
            let mut child = Command::new("sh");
            child.arg("-c").arg(line).arg(std::env::current_exe().unwrap()).env(CHILD, closed);
            assert!(child.stdout(Stdio::null()).status().unwrap().success(), "{redirection}");
        }
    }
}
