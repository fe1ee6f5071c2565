//! The queue of tasks: directories to enter and batches of names, last in, first out.
//!
//! This order makes the walk deep rather than wide, so few directories are open at a time.

use std::{
    ffi::CStr,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::threads::locked;

/// Packed entries: for each a type byte, the name, and a NUL.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedNames {
    bytes: Vec<u8>,
    count: usize,
}

impl PackedNames {
    /// Adds an entry.
    pub fn push(&mut self, kind: u8, name: &CStr) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.count += 1;
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Skips `keep` entries from the byte position `place` on, and splits off all entries after them.
    pub fn split_off(&mut self, mut place: usize, keep: usize) -> Self {
        for _ in 0..keep {
            place = self.at(place).map_or(self.bytes.len(), |(_, _, next)| next);
        }
        let bytes = self.bytes.split_off(place.min(self.bytes.len()));
        let mut tail = Self { bytes, count: 0 };
        tail.count = tail.iter().count();
        self.count -= tail.count;
        tail
    }

    /// Returns the entries in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &CStr)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (kind, name, next) = self.at(at)?;
            at = next;
            Some((kind, name))
        })
    }

    /// Returns the entry at a byte position, and the position of the next entry. The first entry is at 0.
    pub fn at(&self, at: usize) -> Option<(u8, &CStr, usize)> {
        let (kind, tail) = self.bytes.get(at..)?.split_first()?;
        let name = CStr::from_bytes_until_nul(tail).ok()?;
        Some((*kind, name, at + name.count_bytes() + 2))
    }
}

/// The queue that the workers of one copy share.
#[derive(Debug)]
pub(crate) struct TaskQueue<T> {
    state: Mutex<QueueState<T>>,
    wake: Condvar,
    idle: AtomicUsize,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct QueueState<T> {
    tasks: Vec<T>,
    // Number of workers that may still add tasks.
    busy: usize,
}

/// Marks a worker as busy. While this value exists, the worker may add tasks, so the run does not end.
pub(crate) struct BusyWorker<'q, T>(&'q TaskQueue<T>);

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(QueueState { tasks: Vec::new(), busy: 0 }),
            wake: Condvar::new(),
            idle: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl<T> TaskQueue<T> {
    /// Announces workers. Each one counts as idle until it calls [`Self::arrive`].
    pub fn expect(&self, workers: usize) {
        self.idle.store(workers, Ordering::Relaxed);
    }

    /// Records that an announced worker has arrived.
    pub fn arrive(&self) {
        self.idle.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a task.
    pub fn push(&self, task: T) {
        locked(&self.state).tasks.push(task);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.wake.notify_one();
        }
    }

    /// Returns the next task. Waits while a busy worker may still add one. `None` means that the run has ended.
    pub fn next(&self) -> Option<(T, BusyWorker<'_, T>)> {
        let mut state = locked(&self.state);
        loop {
            if let Some(task) = state.tasks.pop() {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                state.busy += 1;
                return Some((task, BusyWorker(self)));
            }
            if state.busy == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns `true` if more workers are idle than tasks are queued. Only a hint.
    pub fn is_hungry(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of queued tasks. Only a hint.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl<T> Drop for BusyWorker<'_, T> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.busy -= 1;
        if state.busy == 0 && state.tasks.is_empty() {
            self.0.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_names_come_back_in_order() {
        let mut names = PackedNames::default();
        let wanted = [(8, c"a"), (10, c"\xff\n"), (0, c"a long name with spaces")];
        for (kind, name) in wanted {
            names.push(kind, name);
        }
        assert_eq!(names.len(), 3);
        assert_eq!(names.iter().collect::<Vec<_>>(), wanted);
        let (_, _, second) = names.at(0).unwrap();
        let tail = names.split_off(second, 1);
        assert_eq!((names.len(), tail.len()), (2, 1));
        assert_eq!(names.iter().chain(tail.iter()).collect::<Vec<_>>(), wanted);
        assert_eq!(names.split_off(second, 7).len(), 0);
    }

    #[test]
    fn an_empty_queue_ends_at_once() {
        let queue = TaskQueue::<()>::default();
        assert!(queue.next().is_none());
        assert!(!queue.is_hungry());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn an_expected_worker_counts_as_waiting() {
        let queue = TaskQueue::default();
        queue.expect(2);
        queue.arrive();
        assert!(queue.is_hungry());
        queue.push(());
        assert!(!queue.is_hungry());
        assert!(queue.next().is_some());
        queue.arrive();
        assert!(!queue.is_hungry());
    }
}
