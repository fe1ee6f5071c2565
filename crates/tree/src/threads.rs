//! The threads of a run.

use rustix::process::{Resource, getrlimit};
use std::{num::NonZero, thread};
use thalweg_sys::{fault, usage};

/// So many threads, or as many as there are processors if that is 0.
pub(crate) fn or_processors(jobs: usize) -> usize {
    match jobs {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        jobs => jobs,
    }
}

/// So many threads of a walk that reads, or as many as there are descriptors for.
pub(crate) fn for_reading(jobs: usize) -> usize {
    // What every process has, and the roots; what a thread has open at a time: on two sides the folder it
    // is in, another that waits for an idle thread, a file, and a step on the way to it.
    const ALL: u64 = 8;
    const EACH: u64 = 8;
    let limit = usage::raise_open_files().unwrap_or(getrlimit(Resource::Nofile).current);
    let enough = limit.map_or(u64::MAX, |limit| limit.saturating_sub(ALL) / EACH);
    or_processors(jobs).min(usize::try_from(enough).unwrap_or(usize::MAX)).max(1)
}

/// The stack of a thread: the walk of a copy nests at most 32 directories on it.
const STACK: usize = 1 << 20;

/// Does the same work on this thread and on others, `threads` in all if the kernel allows so many, and
/// gathers what each answers.
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
                // A limit on processes or a filter may allow no more threads: those there are do the work.
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

/// Gives the calling thread credentials of its own, equal to the ones it shares with the others:
/// every open and close counts references to them, and processors would pass that count around.
fn own_credentials() {
    use rustix::thread::{get_keep_capabilities, set_keep_capabilities};
    // Setting a flag to what it is changes nothing but makes the kernel copy them (prctl(2)).
    let _ = get_keep_capabilities().and_then(set_keep_capabilities);
}
