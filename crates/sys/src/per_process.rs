//! What serves a whole process: values that its threads have in common, and threads of our own. A child
//! made by fork has neither, and begins anew: its parent's threads are not there, and a lock may have
//! been held in the moment of the fork.

use crate::Errno;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value for each process, made by the first who asks there and kept as long as the process.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Here<T>>);

/// The value, and whose it is.
pub(crate) struct Here<T> {
    pub process: u32,
    pub value: T,
}

impl<T: Default + Sync> PerProcess<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// This process's. No lock that a fork could have left locked is touched to find it.
    pub fn here(&'static self) -> &'static Here<T> {
        let process = std::process::id();
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: what it points to was leaked.
            if let Some(here) = unsafe { now.as_ref() }
                && here.process == process
            {
                return here;
            }
            let fresh = Box::into_raw(Box::new(Here { process, value: T::default() }));
            match self.0.compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: just made, and leaked from here on.
                Ok(_) => return unsafe { &*fresh },
                Err(other) => {
                    // SAFETY: nobody else has seen it.
                    drop(unsafe { Box::from_raw(fresh) });
                    now = other;
                }
            }
        }
    }
}

/// Starts a thread that no signal of the program reaches. EAGAIN or EPERM if there is none to be had.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let thread = std::thread::Builder::new().name(name.into());
    let started = thread.spawn(move || {
        block_signals();
        work();
    });
    started.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

/// Signals are for the program's own threads.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}
