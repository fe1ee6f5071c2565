//! Counts the system calls of this crate. It counts calls that move bytes, allocate or publish
//! files, the waits between them, and each `io_uring_enter`. It does not count set-up calls and
//! waits of threads for each other.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
    static HELPERS: OnceCell<Arc<AtomicU64>> = const { OnceCell::new() };
}

/// Returns the number of calls made so far by this thread and by the threads that it started. The
/// calls of a started thread are included once its
/// [`Inherited::enter`](crate::fault::Inherited::enter) has ended.
pub fn calls() -> u64 {
    OWN.get() + HELPERS.with(|helpers| helpers.get().map_or(0, |h| h.load(Ordering::Relaxed)))
}

/// Counts one call.
#[inline]
pub(crate) fn one() {
    OWN.set(OWN.get() + 1);
}

/// Returns the counter to which the threads started by this one add their calls.
pub(crate) fn helpers() -> Arc<AtomicU64> {
    HELPERS.with(|helpers| Arc::clone(helpers.get_or_init(Arc::default)))
}

/// Runs `body`, and adds the calls made inside it to `starter`, even if it panics.
pub(crate) fn handing_in<R>(starter: Arc<AtomicU64>, body: impl FnOnce() -> R) -> R {
    let _at_the_end = HandIn { starter, before: OWN.get() };
    body()
}

struct HandIn {
    starter: Arc<AtomicU64>,
    before: u64,
}

impl Drop for HandIn {
    fn drop(&mut self) {
        let mut made = OWN.replace(self.before) - self.before;
        HELPERS.with(|helpers| {
            let further = helpers.get().filter(|further| !Arc::ptr_eq(further, &self.starter));
            made += further.map_or(0, |further| further.swap(0, Ordering::Relaxed));
        });
        self.starter.fetch_add(made, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{fault, io};

    fn three_calls() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(io::write(&writer, b"x"), Ok(1));
        assert_eq!(io::wait_readable(&reader, None), Ok(true));
        assert_eq!(io::read(&reader, &mut [0; 4]), Ok(1));
    }

    #[test]
    fn calls_count_for_their_own_thread_only() {
        let before = calls();
        three_calls();
        std::thread::spawn(three_calls).join().unwrap();
        assert_eq!(calls() - before, 3);
    }

    #[test]
    fn a_thread_that_inherits_hands_its_calls_in_and_so_do_those_it_starts() {
        let before = calls();
        let inherited = fault::inherit();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                inherited.enter(|| {
                    three_calls();
                    let further = fault::inherit();
                    let thread = std::thread::spawn(move || further.enter(three_calls));
                    thread.join().unwrap();
                });
            });
        });
        assert_eq!(calls() - before, 6);
    }

    #[test]
    fn entering_on_the_same_thread_counts_once() {
        let before = calls();
        fault::inherit().enter(three_calls);
        assert_eq!(calls() - before, 3);
    }
}
