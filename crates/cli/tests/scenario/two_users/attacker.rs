//! The other user: threads of the test process that have an unprivileged user's credentials.
//!
//! Linux keeps credentials per thread, so such a thread shares open files and the clock with the test, and the kernel
//! judges its system calls as those of any other process of that user.

use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

/// User ID of the attacker; no account needs to have it.
pub const UID: u32 = 54_321;

/// Runs `task` as the attacker and returns its result.
pub fn as_attacker<T: Send>(task: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let task = scope.spawn(|| {
            drop_privileges();
            task()
        });
        task.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// A thread of the attacker that repeats one step until this is stopped.
pub struct Race {
    stop: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Race {
    pub fn start(mut step: impl FnMut() + Send + 'static) -> Self {
        let (stop, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, counted) = (stop.clone(), steps.clone());
        let thread = thread::spawn(move || {
            drop_privileges();
            while !stopped.load(Ordering::Relaxed) {
                step();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let race = Self { stop, steps, thread: Some(thread) };
        while race.steps() == 0 && race.thread.as_ref().is_some_and(|thread| !thread.is_finished())
        {
            thread::yield_now();
        }
        race
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Stops the thread after its current step.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        self.end();
    }
}

/// Drops root privileges of this thread, unless it has none. Drops the groups first, because only root may change them.
fn drop_privileges() {
    if !geteuid().is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(UID), Gid::from_raw(UID));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}
