//! Values that the threads of a process share. A child made by fork gets fresh ones: its parent's threads do not exist
//! there, and a lock may have been held at the moment of the fork.

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
