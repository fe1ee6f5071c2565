//! The threads of an operation.

use rustix::process::{Resource, getrlimit};
use std::{
    num::NonZero,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};
use thalweg_sys::{fault, usage};

/// Returns `jobs`, or the number of cores if `jobs` is 0.
pub(crate) fn or_processors(jobs: usize) -> usize {
    match jobs {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        jobs => jobs,
    }
}

/// Returns the number of threads for a walk that only reads, limited by the available descriptors.
pub(crate) fn for_reading(jobs: usize) -> usize {
    // `ALL`: descriptors of the whole process, such as the standard streams and the roots. `EACH`: the descriptors
    // that one thread has open at a time, four on each of two sides. These are its current directory, another
    // directory that waits for an idle thread, a file, and one directory on the path to that file.
    const ALL: u64 = 8;
    const EACH: u64 = 8;
    let limit = usage::raise_open_files().unwrap_or(getrlimit(Resource::Nofile).current);
    let enough = limit.map_or(u64::MAX, |limit| limit.saturating_sub(ALL) / EACH);
    or_processors(jobs).min(usize::try_from(enough).unwrap_or(usize::MAX)).max(1)
}

/// Locks a mutex. Data that a panicking thread left is used.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stack size of a thread: the walk of a copy nests at most 32 directories.
const STACK: usize = 1 << 20;

/// Runs `work` on up to `threads` threads, including this one. Returns the results of all threads.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map_while(|_| {
                let faults = fault::inherit();
                let work = move || {
                    own_credentials();
                    faults.enter(work)
                };
                // If a process limit or a filter prevents further threads, the existing ones do all the work.
                thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()
            })
            .collect();
        let mut answers = vec![work()];
        for helper in helpers {
            match helper.join() {
                Ok(answer) => answers.push(answer),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        answers
    })
}

/// Gives the calling thread its own copy of the credentials, which all threads share by default. Every open and close
/// updates their reference count, for which cores would contend.
fn own_credentials() {
    use rustix::thread::{get_keep_capabilities, set_keep_capabilities};
    // Setting a flag to its current value has no effect, except that the kernel copies the credentials (prctl(2)).
    let _ = get_keep_capabilities().and_then(set_keep_capabilities);
}
