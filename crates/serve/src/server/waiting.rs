//! Counts the memory of answers that wait for their clients. If this memory exceeds the limit, the answers that have
//! waited longest release their memory.

use std::collections::{HashMap, VecDeque};

/// Memory held per connection of one worker, by token.
#[derive(Debug)]
pub struct WaitingMemory {
    most: u64,
    held: u64,
    /// By token: the bytes that the connection holds, and its number in `order`.
    each: HashMap<u64, (u64, u64)>,
    /// Tokens with increasing numbers, in the order in which the waits began. An entry is stale if `each` has no such
    /// token or another number for it: the connection has continued since.
    order: VecDeque<(u64, u64)>,
    places: u64,
}

impl WaitingMemory {
    /// Creates an empty account with a limit of `most` bytes.
    pub fn within(most: u64) -> Self {
        Self { most, held: 0, each: HashMap::new(), order: VecDeque::new(), places: 0 }
    }

    /// Records the memory that a connection holds; 0 if it does not wait. Returns `true` if the total exceeds the
    /// limit.
    pub fn count(&mut self, token: u64, held: u64) -> bool {
        if held == 0 {
            if !self.each.is_empty()
                && let Some((before, _)) = self.each.remove(&token)
            {
                self.held -= before;
            }
        } else if let Some((before, _)) = self.each.get_mut(&token) {
            self.held = self.held - *before + held;
            *before = held;
        } else {
            self.places += 1;
            self.each.insert(token, (held, self.places));
            self.order.push_back((token, self.places));
            self.held += held;
        }
        if self.order.len() > 2 * self.each.len() + 16 {
            let each = &self.each;
            self.order.retain(|(token, place)| each.get(token).is_some_and(|(_, at)| at == place));
        }
        self.held > self.most
    }

    /// While the total exceeds the limit, removes and returns the connection that has waited longest.
    pub fn longest(&mut self) -> Option<u64> {
        while self.held > self.most {
            let (token, place) = self.order.pop_front()?;
            if self.each.get(&token).is_some_and(|(_, at)| *at == place) {
                let (held, _) = self.each.remove(&token)?;
                self.held -= held;
                return Some(token);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_waiting_goes_first_and_a_continued_one_waits_again() {
        let mut waiting = WaitingMemory::within(25);
        assert!(!waiting.count(1, 10) && !waiting.count(2, 10));
        waiting.count(1, 0);
        waiting.count(1, 10);
        assert_eq!(waiting.longest(), None);
        assert!(waiting.count(3, 10));
        assert_eq!((waiting.longest(), waiting.longest()), (Some(2), None));
        assert!(waiting.count(4, 26));
        let left: Vec<u64> = std::iter::from_fn(|| waiting.longest()).collect();
        assert_eq!((left, waiting.held), (vec![1, 3, 4], 0));
    }

    proptest! {
        #[test]
        fn what_is_held_is_the_sum_and_never_stays_above_the_most(
            steps in prop::collection::vec((0..20_u64, 0..100_u64), 0..400),
        ) {
            let mut waiting = WaitingMemory::within(500);
            let mut each = HashMap::new();
            for (token, held) in steps {
                each.insert(token, held);
                waiting.count(token, held);
                while let Some(token) = waiting.longest() {
                    prop_assert!(each.insert(token, 0).is_some_and(|held| held > 0));
                }
                let sum: u64 = each.values().sum();
                prop_assert_eq!(waiting.held, sum);
                prop_assert!(sum <= 500 && waiting.order.len() <= 2 * waiting.each.len() + 17);
            }
        }
    }
}
