//! Values that the threads of a process share. A forked child gets new ones, because the threads of its parent do not
//! exist in it. One of them may have held a lock at the moment of the fork.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value for each process, created at its first use there and never freed.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<ProcessValue<T>>);

/// The value, and the process it belongs to.
pub(crate) struct ProcessValue<T> {
    pub process: u32,
    pub value: T,
}

impl<T: Default + Sync> PerProcess<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns this process's value. Does not take a lock, because a fork could have left it locked.
    pub fn here(&'static self) -> &'static ProcessValue<T> {
        let process = std::process::id();
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointee was leaked.
            if let Some(here) = unsafe { now.as_ref() }
                && here.process == process
            {
                return here;
            }
            let fresh = Box::into_raw(Box::new(ProcessValue { process, value: T::default() }));
            match self.0.compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: just created, and leaked from here on.
                Ok(_) => return unsafe { &*fresh },
                Err(other) => {
                    // SAFETY: no other thread has seen it.
                    drop(unsafe { Box::from_raw(fresh) });
                    now = other;
                }
            }
        }
    }
}
