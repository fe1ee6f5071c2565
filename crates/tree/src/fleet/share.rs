//! Determines the order of tasks for a worker. The worker starts with its own share, the largest tasks first. Then it
//! takes open tasks from the shares of other workers, the smallest tasks first. Tasks are not claimed, so no worker
//! waits for another.

use std::cmp::Reverse;

use super::{bits::Bits, plan::Indexed};

/// The fixed cost of a file, expressed in bytes: about one page, like `CALL` in `copy/plans/contest.rs`.
const FILE: u64 = 4096;

/// The order in which one worker processes the tasks.
#[derive(Debug)]
pub(crate) struct TaskShare {
    // All tasks, the largest first. The ranks get them in turn: rank 0 the first task, rank 1 the second, and so on.
    order: Vec<u32>,
    rank: usize,
    size: usize,
    taken: Bits,
    // Position in `order` of the next task in the worker's own share.
    own: usize,
    // The rank that the worker helps, relative to its own rank, and the position of that rank's next task.
    helped: usize,
    place: Option<usize>,
}

impl TaskShare {
    pub fn new(index: &[Indexed], rank: u32, size: u32) -> Self {
        let weight = |n: &u32| {
            let task = &index[*n as usize];
            task.bytes.saturating_add(u64::from(task.files) * FILE)
        };
        let mut order: Vec<u32> = (0..index.len() as u32).collect();
        order.sort_by_cached_key(|n| Reverse(weight(n)));
        let size = size.max(1) as usize;
        let has_share = (rank as usize) < size;
        let rank = rank as usize % size;
        let taken = Bits::new(order.len());
        let own = if has_share { rank } else { order.len() };
        let mut share = Self { order, rank, size, taken, own, helped: 0, place: None };
        share.place = (!has_share).then(|| share.last_of(rank)).flatten();
        share
    }

    /// Creates the order for a worker that may share its rank with other workers. `place` is its position among them;
    /// `None` if it is alone. If two workers had one order, they would do each task at the same time. Therefore a
    /// worker with a place has no share of its own. It only helps, and starts with the smallest tasks.
    pub fn beside(index: &[Indexed], rank: u32, size: u32, place: Option<u32>) -> Self {
        let Some(place) = place else { return Self::new(index, rank, size) };
        let size = size.max(1);
        Self::new(index, size.saturating_add(rank.saturating_add(place) % size), size)
    }

    /// Returns `true` if all tasks of the worker's own share are processed.
    pub fn helps(&self) -> bool {
        self.own >= self.order.len()
    }

    /// Returns the next task that is not done. Each task is returned once.
    pub fn next(&mut self, done: &Bits) -> Option<usize> {
        while let Some(task) = self.order.get(self.own) {
            self.own += self.size;
            if let Some(task) = self.take(*task, done) {
                return Some(task);
            }
        }
        while self.helped < self.size {
            while let Some(place) = self.place {
                self.place = place.checked_sub(self.size);
                if let Some(task) = self.take(self.order[place], done) {
                    return Some(task);
                }
            }
            self.helped = self.next_helped();
            // The last rank in this circle is the worker's own rank, which has no tasks left.
            self.place = self.last_of((self.rank + self.helped) % self.size);
        }
        None
    }

    /// Returns the next rank to help, relative to the worker's own rank. Ranks ascend and wrap around to 0. Ranks
    /// without tasks are skipped.
    fn next_helped(&self) -> usize {
        let helped = self.helped + 1;
        match self.rank + helped {
            rank if rank < self.size && rank >= self.order.len() => self.size - self.rank,
            rank if rank >= self.size + self.order.len() => self.size,
            _ => helped,
        }
    }

    fn take(&mut self, task: u32, done: &Bits) -> Option<usize> {
        let task = task as usize;
        (!done.has(task) && self.taken.add(task)).then_some(task)
    }

    /// Returns the index of the last task of a rank.
    fn last_of(&self, rank: usize) -> Option<usize> {
        let beyond = self.order.len().checked_sub(rank + 1)?;
        Some(rank + beyond / self.size * self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(count: u64) -> Vec<Indexed> {
        let task = |n| Indexed { offset: 0, len: 0, files: 0, bytes: 1000 - n, hash: 0 };
        (0..count).map(task).collect()
    }

    fn all(count: u64, rank: u32, size: u32) -> Vec<usize> {
        let mut share = TaskShare::new(&index(count), rank, size);
        let none = Bits::new(count as usize);
        std::iter::from_fn(|| share.next(&none)).collect()
    }

    #[test]
    fn a_worker_does_its_own_from_the_front_and_helps_from_the_end() {
        assert_eq!(all(7, 1, 3), [1, 4, 5, 2, 6, 3, 0]);
        assert_eq!(all(3, 0, 1), [0, 1, 2]);
        // Rank 7 is not below the size of the fleet, so it has no share of its own.
        assert_eq!(all(7, 4, 3), [4, 1, 5, 2, 6, 3, 0]);
        assert_eq!(all(3, 1, 1), [2, 1, 0]);
    }

    #[test]
    fn workers_of_one_rank_take_other_orders_and_come_to_every_task() {
        let order = |rank, size, place| -> Vec<usize> {
            let mut share = TaskShare::beside(&index(7), rank, size, place);
            let none = Bits::new(7);
            std::iter::from_fn(|| share.next(&none)).collect()
        };
        assert_eq!(order(1, 3, None), [1, 4, 5, 2, 6, 3, 0]);
        assert_eq!(order(1, 3, Some(0)), [4, 1, 5, 2, 6, 3, 0]);
        assert_eq!(order(1, 3, Some(1)), [5, 2, 6, 3, 0, 4, 1]);
        assert_eq!(order(0, 0, Some(u32::MAX)), [6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(order(u32::MAX, u32::MAX, Some(u32::MAX)).len(), 7);
    }

    #[test]
    fn every_worker_comes_to_every_task_once_however_many_there_are() {
        for count in [0, 1, 2, 7, 100] {
            for size in [1, 2, 3, 7, 8, 1000, u32::MAX] {
                for rank in [0, 1, size / 2, size - 1, size.saturating_add(1)] {
                    let mut seen = all(count, rank, size);
                    assert_eq!(seen.len() as u64, count, "{rank}/{size}");
                    seen.sort_unstable();
                    seen.dedup();
                    assert_eq!(seen.len() as u64, count);
                }
            }
        }
    }

    #[test]
    fn what_others_have_done_is_passed_over() {
        let index = index(6);
        let mut share = TaskShare::new(&index, 0, 2);
        let mut done = Bits::new(6);
        done.add(0);
        assert_eq!(share.next(&done), Some(2));
        done.add(4);
        done.add(5);
        assert_eq!((share.next(&done), share.helps()), (Some(3), true));
        assert_eq!((share.next(&done), share.next(&done)), (Some(1), None));
    }
}
