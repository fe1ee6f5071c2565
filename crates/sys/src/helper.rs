//! Helper threads of the library. They block every signal, and do not keep the process alive.
//!
//! If `main` calls `pthread_exit`, the C library ends the process when its last thread ends. A helper thread never
//! ends. Once only helper threads are left, [`outlive_the_program`] therefore calls `exit(3)` itself.

use crate::Errno;
use crate::per_process::PerProcess;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, ptr};

/// Interval between two checks of the main thread. Linux has no call that waits for the end of the main thread while
/// other threads continue. `poll` on a pidfd returns only when the whole process has ended (since Linux 6.15, also with
/// `PIDFD_THREAD`).
const INTERVAL: Duration = Duration::from_secs(1);

/// The ids of the helper threads of this process.
static HELPERS: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();

/// Starts a helper thread. EAGAIN or EPERM if no thread can be started.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let helper = std::thread::Builder::new().name(name.into());
    let started = helper.spawn(move || {
        mask_signals(libc::SIG_BLOCK);
        let helpers = &HELPERS.here().value;
        helpers.lock().unwrap_or_else(PoisonError::into_inner).push(this_thread());
        work();
    });
    started.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

pub(crate) fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Sleeps until only helper threads are left, then ends the process with exit status 0, as the C library does after the
/// last `pthread_exit`.
pub(crate) fn outlive_the_program() -> ! {
    let main = std::process::id();
    loop {
        std::thread::sleep(INTERVAL);
        if has_ended(main) && is_alone(main).unwrap_or(false) {
            // Exit handlers may take long. Signals are unblocked first, so that a signal can still end the process.
            mask_signals(libc::SIG_UNBLOCK);
            std::process::exit(0);
        }
    }
}

/// Returns `true` if every thread except `main` is a helper. `main` must have ended. The kernel lists a new thread
/// after the thread that created it, so no thread is missed.
fn is_alone(main: u32) -> io::Result<bool> {
    let threads = fs::read_dir("/proc/self/task")?;
    let threads: Vec<u32> = threads
        .map(|thread| {
            thread?
                .file_name()
                .to_str()
                .and_then(|id| id.parse().ok())
                .ok_or(io::ErrorKind::InvalidData.into())
        })
        .collect::<io::Result<_>>()?;
    let helpers = HELPERS.here().value.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(threads.iter().all(|thread| *thread == main || helpers.contains(thread)))
}

/// Returns `true` if a thread of this process has ended, according to proc_pid_stat(5). `false` if /proc is not
/// mounted.
fn has_ended(thread: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/self/task/{thread}/stat")) else { return false };
    // The thread's name may contain parentheses, so the last `)` of the line ends it.
    let behind_name = stat.rsplit(|byte| *byte == b')').next();
    matches!(behind_name, Some([b' ', b'Z' | b'X', ..]))
}

fn mask_signals(how: libc::c_int) {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled; the previous one is not requested.
    unsafe { libc::pthread_sigmask(how, all.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_of_the_program_is_seen_until_it_has_ended() {
        let (tell, told) = mpsc::channel();
        let (end, until) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(this_thread()).unwrap();
            let _ = until.recv();
        });
        let id = told.recv().unwrap();
        assert!(!has_ended(id));
        // The test's own thread is not a helper either.
        assert!(!is_alone(id).unwrap());
        drop(end);
        thread.join().unwrap();
    }
}
