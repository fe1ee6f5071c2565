//! Helper threads, which wait for disks and compute hashes so that workers do not block.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::process::nice;
use thalweg_sys::{buffer::Buffer, fault};

use super::{
    lane_queue::{LaneQueue, Queued},
    tasks::{HelperLane, HelperResources, HelperTask},
};

/// Maximum number of threads. A disk that hangs occupies at most as many as its lane (a class of tasks) allows.
const MOST: usize = 32;

/// Added to the nice value of helpers, which gives workers priority.
const NICE: i32 = 5;

/// The helper threads of a server.
#[derive(Default)]
pub struct HelperPool(Arc<PoolShared>);

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    bell: Condvar,
    is_over: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    lanes: HashMap<HelperLane, LaneQueue>,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for HelperPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HelperPool").finish_non_exhaustive()
    }
}

impl HelperPool {
    /// Queues a task. The returned flag is set when the task is done, before the mailbox gets the token. If the flag is
    /// dropped before the task has begun, the task is dropped too. Returns `None` if the pool has no thread and none
    /// can be started.
    pub fn give(&self, task: HelperTask) -> Option<Arc<AtomicBool>> {
        let done = Arc::new(AtomicBool::new(false));
        let mut state = self.0.lock();
        let lane = task.lane;
        state.lanes.entry(lane).or_default().add((task, Arc::clone(&done)));
        // A thread that was woken for an earlier task may be busy with it for a long time, so only idle threads count.
        if state.idle < state.startable() && state.threads < MOST && self.start() {
            state.threads += 1;
        }
        if state.threads == 0 {
            state.lanes.clear();
            return None;
        }
        self.0.bell.notify_one();
        Some(done)
    }

    /// Starts a detached thread. It is never joined, because a hanging disk could delay its end for ever.
    fn start(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let faults = fault::inherit();
        let run = move || faults.enter(|| shared.work());
        thread::Builder::new().name("helper".to_owned()).spawn(run).is_ok()
    }
}

impl Drop for HelperPool {
    fn drop(&mut self) {
        // The store happens under the lock: otherwise a thread could check the flag, miss the wake-up and sleep.
        let state = self.0.lock();
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.bell.notify_all();
        drop(state);
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        // On a busy machine workers have priority: they answer clients that need no helper. A seccomp filter may reject
        // `setpriority`; the helper then runs at normal priority.
        let _ = nice(NICE);
        let mut buffer = Buffer::default();
        let mut state = self.lock();
        while !self.is_over.load(Ordering::Relaxed) {
            let Some((task, done)) = state.next() else {
                state.idle += 1;
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let HelperTask { lane, work, waiter } = task;
            // The panic hook reports a panic of the task. Even then, the lane is released and the waiter is notified.
            let mut hand = HelperResources { is_over: &self.is_over, buffer: &mut buffer };
            let _ = panic::catch_unwind(AssertUnwindSafe(|| work(&mut hand)));
            done.store(true, Ordering::Release);
            waiter.mailbox.notify(waiter.token);
            state = self.lock();
            state.end(lane);
            // Another thread may have skipped this lane because it was full; now it can continue.
            self.bell.notify_one();
        }
    }
}

impl PoolState {
    /// Returns a task from a lane that is below its limit.
    fn next(&mut self) -> Option<Queued> {
        self.lanes.iter_mut().find_map(
            |(lane, queue)| {
                if queue.busy < lane.most() { queue.take() } else { None }
            },
        )
    }

    /// Returns the number of tasks that could start now. More threads than that would be idle.
    fn startable(&self) -> usize {
        let of_lane = |(lane, queue): (&HelperLane, &LaneQueue)| {
            lane.most().saturating_sub(queue.busy).min(queue.count)
        };
        self.lanes.iter().map(of_lane).sum()
    }

    fn end(&mut self, lane: HelperLane) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.busy -= 1;
            if queue.busy == 0 && queue.count == 0 {
                self.lanes.remove(&lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, atomic::AtomicUsize, mpsc};

    use rustix::event::{EventfdFlags, eventfd};
    use thalweg_sys::io;

    use std::net::IpAddr;

    use super::*;
    use crate::server::{
        mailbox::Mailbox,
        tasks::{HashSize, PER_DEVICE, Waiter},
    };

    const SMALL: HelperLane = HelperLane::Hash(HashSize::Small);
    const LARGE: HelperLane = HelperLane::Hash(HashSize::Large);

    fn mailbox() -> (Arc<Mailbox>, Arc<std::os::fd::OwnedFd>) {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        (Arc::new(Mailbox::new(Arc::clone(&wake))), wake)
    }

    fn task(
        lane: HelperLane,
        mailbox: &Arc<Mailbox>,
        work: impl FnOnce() + Send + 'static,
    ) -> HelperTask {
        let waiter = Waiter { token: 0, mailbox: Arc::clone(mailbox), client: None };
        HelperTask { lane, work: Box::new(move |_| work()), waiter }
    }

    #[test]
    fn every_task_is_done_and_reported_once() {
        let (helpers, (mailbox, wake)) = (HelperPool::default(), mailbox());
        let mut waited_for = Vec::new();
        for token in 0..100 {
            let mut task = task(HelperLane::Device(token % 3), &mailbox, || ());
            task.waiter.token = token;
            waited_for.push(helpers.give(task).unwrap());
        }
        let mut notified = Vec::new();
        while notified.len() < 100 {
            io::read(&*wake, &mut [0; 8]).unwrap();
            notified.extend(mailbox.take());
        }
        notified.sort_unstable();
        assert_eq!(notified, (0..100).collect::<Vec<u64>>());
        assert!(waited_for.iter().all(|done| done.load(Ordering::Acquire)));
        assert!(helpers.0.lock().threads <= MOST);
    }

    #[test]
    fn one_device_that_hangs_keeps_neither_others_nor_hashes() {
        let (helpers, (mailbox, _)) = (HelperPool::default(), mailbox());
        let hang = Arc::new(Barrier::new(PER_DEVICE + 1));
        let mut flags = Vec::new();
        for _ in 0..PER_DEVICE {
            let hang = Arc::clone(&hang);
            let work = move || {
                hang.wait();
            };
            flags.push(helpers.give(task(HelperLane::Device(1), &mailbox, work)).unwrap());
        }
        let late = Arc::new(AtomicUsize::new(0));
        for _ in 0..5 {
            let late = Arc::clone(&late);
            let work = move || late.store(1, Ordering::SeqCst);
            flags.push(helpers.give(task(HelperLane::Device(1), &mailbox, work)).unwrap());
        }
        let (send, received) = mpsc::channel();
        for lane in [HelperLane::Device(2), SMALL, SMALL] {
            let send = send.clone();
            let flag = helpers.give(task(lane, &mailbox, move || send.send(()).unwrap()));
            received.recv().unwrap();
            drop(flag);
        }
        // The tasks of the full lane have not started.
        assert_eq!(late.load(Ordering::SeqCst), 0);
        hang.wait();
    }

    #[test]
    fn tasks_of_a_full_lane_bring_no_threads() {
        let (helpers, (mailbox, _)) = (HelperPool::default(), mailbox());
        let hang = Arc::new(Barrier::new(2));
        let (begun, has_begun) = mpsc::channel();
        let work = {
            let hang = Arc::clone(&hang);
            move || {
                begun.send(()).unwrap();
                hang.wait();
            }
        };
        let _flag = helpers.give(task(LARGE, &mailbox, work)).unwrap();
        has_begun.recv().unwrap();
        let rest: Vec<_> =
            (0..50).map(|_| helpers.give(task(LARGE, &mailbox, || ())).unwrap()).collect();
        assert_eq!(helpers.0.lock().threads, 1);
        hang.wait();
        while !rest.iter().all(|done| done.load(Ordering::Acquire)) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_task_that_panics_is_reported_and_its_lane_is_free_again() {
        let (helpers, (mailbox, _)) = (HelperPool::default(), mailbox());
        for _ in 0..3 {
            let done = helpers.give(task(LARGE, &mailbox, || panic!("as planted"))).unwrap();
            while !done.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        let (send, received) = mpsc::channel();
        let flag = helpers.give(task(LARGE, &mailbox, move || send.send(()).unwrap()));
        received.recv().unwrap();
        drop(flag);
        assert!(helpers.0.lock().threads <= 2);
    }

    #[test]
    fn a_client_with_many_tasks_does_not_keep_another_one_waiting() {
        let (helpers, (mailbox, _)) = (HelperPool::default(), mailbox());
        let hang = Arc::new(Barrier::new(2));
        let work = {
            let hang = Arc::clone(&hang);
            move || {
                hang.wait();
            }
        };
        let mut flags = vec![helpers.give(task(LARGE, &mailbox, work)).unwrap()];
        let (send, received) = mpsc::channel();
        for number in 0..50_u8 {
            let send = send.clone();
            let mut task = task(LARGE, &mailbox, move || send.send(number).unwrap());
            // All tasks but the last one belong to one client.
            let host = u8::from(number == 49);
            task.waiter.client = Some(IpAddr::from([127, 0, 0, host]));
            flags.push(helpers.give(task).unwrap());
        }
        hang.wait();
        let order: Vec<u8> = received.iter().take(50).collect();
        assert!(order[..2].contains(&49), "{order:?}");
    }
}
