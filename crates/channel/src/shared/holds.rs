//! Tracks the messages of a ring that its consumer still holds. The published tail stays at the oldest held message,
//! even if later ones were given back.

use std::collections::BTreeSet;

/// The held messages of one consumer.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Start positions of the held messages.
    held: BTreeSet<u64>,
    /// Position before which every message was either given back or is held.
    passed: u64,
    /// The tail that was last published to the producer.
    told: u64,
}

impl Holds {
    /// Creates an empty set. Everything before `tail` counts as given back.
    pub fn new(tail: u64) -> Self {
        Self { held: BTreeSet::new(), passed: tail, told: tail }
    }

    /// Holds the message that begins at `at`. The message must not have been given back.
    pub fn hold(&mut self, at: u64) {
        self.held.insert(at);
    }

    /// Gives back everything before `to` that is not held. If the tail moves, returns its new value, which the caller
    /// must publish.
    pub fn pass(&mut self, to: u64) -> Option<u64> {
        self.passed = to;
        self.moved()
    }

    /// Gives back a held message. If the tail moves, returns its new value, which the caller must publish.
    pub fn give_back(&mut self, at: u64) -> Option<u64> {
        self.held.remove(&at);
        self.moved()
    }

    /// Returns the number of held messages.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the tail that was last published to the producer.
    pub fn tail(&self) -> u64 {
        self.told
    }

    fn moved(&mut self) -> Option<u64> {
        // A held message may begin after `passed`, if it is from a batch that is still being read.
        let oldest = self.held.first().map_or(self.passed, |oldest| self.passed.min(*oldest));
        (oldest > self.told).then(|| {
            self.told = oldest;
            oldest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_stands_at_the_oldest_held() {
        let mut holds = Holds::new(64);
        holds.hold(64);
        assert_eq!(holds.pass(128), None);
        assert_eq!(holds.pass(192), None);
        holds.hold(192);
        assert_eq!(holds.pass(256), None);
        assert_eq!((holds.len(), holds.tail()), (2, 64));
        assert_eq!(holds.give_back(64), Some(192));
        assert_eq!(holds.give_back(192), Some(256));
        assert_eq!(holds.pass(320), Some(320));
    }

    #[test]
    fn what_was_given_back_out_of_order_goes_with_the_oldest() {
        let mut holds = Holds::new(0);
        for at in [0, 64, 128] {
            holds.hold(at);
            assert_eq!(holds.pass(at + 64), None);
        }
        assert_eq!(holds.give_back(128), None);
        assert_eq!(holds.give_back(64), None);
        assert_eq!(holds.give_back(0), Some(192));
    }

    #[test]
    fn a_message_held_ahead_of_what_was_passed_moves_nothing() {
        let mut holds = Holds::new(0);
        holds.hold(64);
        assert_eq!(holds.give_back(64), None);
        holds.hold(128);
        assert_eq!(holds.pass(192), Some(128));
    }
}
