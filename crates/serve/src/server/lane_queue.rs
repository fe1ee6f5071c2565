//! The queue of a lane, which is a class of tasks with a limit on concurrent helper threads. Client addresses take
//! turns, so that a client with many tasks does not block the others.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use super::tasks::HelperTask;

/// A task and the flag that is set when it is done. The waiter holds the other reference to the flag.
pub type Queued = (HelperTask, Arc<AtomicBool>);

/// The queue of a lane.
#[derive(Default)]
pub struct LaneQueue {
    /// Number of tasks in progress.
    pub busy: usize,
    /// Number of queued tasks.
    pub count: usize,
    tasks: HashMap<Option<IpAddr>, VecDeque<Queued>>,
    /// Addresses with queued tasks. The one served last is at the end.
    turns: VecDeque<Option<IpAddr>>,
    /// Number of queued tasks at which the next sweep removes abandoned tasks.
    swept_at: usize,
}

/// Queues shorter than this are not swept.
const FEW: usize = 64;

impl LaneQueue {
    /// Appends a task to those of its client.
    pub fn add(&mut self, queued: Queued) {
        if self.count >= self.swept_at.max(FEW) {
            self.sweep();
            self.swept_at = self.count * 2;
        }
        let client = queued.0.waiter.client;
        let tasks = self.tasks.entry(client).or_default();
        if tasks.is_empty() {
            self.turns.push_back(client);
        }
        tasks.push_back(queued);
        self.count += 1;
    }

    /// Takes the first task of the client that has waited longest for a turn.
    pub fn take(&mut self) -> Option<Queued> {
        while let Some(client) = self.turns.pop_front() {
            let Some(tasks) = self.tasks.get_mut(&client) else { continue };
            let mut next = None;
            while next.is_none()
                && let Some(queued) = tasks.pop_front()
            {
                self.count -= 1;
                next = Some(queued).filter(is_wanted);
            }
            if tasks.is_empty() {
                self.tasks.remove(&client);
            } else {
                self.turns.push_back(client);
            }
            if next.is_some() {
                self.busy += 1;
                return next;
            }
        }
        None
    }

    /// Drops tasks without waiters, because these tasks keep files open.
    fn sweep(&mut self) {
        self.tasks.retain(|_, tasks| {
            tasks.retain(is_wanted);
            !tasks.is_empty()
        });
        let tasks = &self.tasks;
        self.turns.retain(|client| tasks.contains_key(client));
        self.count = tasks.values().map(VecDeque::len).sum();
    }
}

fn is_wanted((_, flag): &Queued) -> bool {
    Arc::strong_count(flag) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        mailbox::Mailbox,
        tasks::{HelperLane, Waiter},
    };

    fn task(client: u8, token: u64) -> HelperTask {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let mailbox = Arc::new(Mailbox::new(Arc::new(wake)));
        let client = Some(IpAddr::from([127, 0, 0, client]));
        let waiter = Waiter { token, mailbox, client };
        HelperTask { lane: HelperLane::Device(0), work: Box::new(|_| ()), waiter }
    }

    #[test]
    fn clients_take_turns_and_what_is_unwanted_is_dropped() {
        let mut queue = LaneQueue::default();
        let flag = || Arc::new(AtomicBool::new(false));
        let flags: Vec<_> = (0..6).map(|_| flag()).collect();
        for (token, client) in [1, 1, 1, 2, 3, 1].into_iter().enumerate() {
            queue.add((task(client, token as u64), Arc::clone(&flags[token])));
        }
        let mut flags = flags.into_iter().map(Some).collect::<Vec<_>>();
        flags[1] = None;
        let order = std::iter::from_fn(|| queue.take()).map(|(task, _)| task.waiter.token);
        assert_eq!(order.collect::<Vec<_>>(), [0, 3, 4, 2, 5]);
        assert_eq!((queue.count, queue.busy), (0, 5));
        for _ in 0..10 * FEW {
            queue.add((task(1, 0), flag()));
        }
        assert!(queue.count <= FEW, "{} unwanted tasks", queue.count);
    }
}
