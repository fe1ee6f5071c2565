//! How long looking is worth while, by how the last waits of this end went. Where messages are rare, or
//! more ends than processors wait for each other, looking ends in a sleep all the same, and took the
//! processor from other threads that could have used it.

use super::Wait;
use std::time::Duration;

/// So many long sleeps, without a short one between them, halve the looking.
const WAITS: u32 = 8;
/// It is halved so often at most: a short look is nearly free, and shows when messages come fast again.
const HALVINGS: u32 = 4;

/// The waits of one end.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Long sleeps since the last short one, at most `WAITS * HALVINGS`.
    in_vain: u32,
}

impl Habit {
    /// How the next wait looks and sleeps, after a sleep of this length that followed looking.
    pub fn after_sleep(&mut self, wait: Wait, time: Duration) -> Wait {
        let Wait::Hybrid { spin } = wait else { return wait };
        // More looking would have ended it, or nearly: some of the time is the wake-up's.
        let is_short = time < 2 * spin;
        self.in_vain = if is_short { 0 } else { (self.in_vain + 1).min(WAITS * HALVINGS) };
        Wait::Hybrid { spin: spin / (1 << (self.in_vain / WAITS)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    fn looking(wait: Wait) -> Duration {
        match wait {
            Wait::Hybrid { spin } => spin,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_end_that_looks_in_vain_looks_less_and_never_not_at_all() {
        let (mut habit, whole) = (Habit::default(), looking(Wait::HYBRID));
        for waits in 1..1000 {
            let halvings = (waits / WAITS).min(HALVINGS);
            let next = habit.after_sleep(Wait::HYBRID, LONG);
            assert_eq!(looking(next), whole / (1 << halvings), "after {waits}");
        }
    }

    #[test]
    fn a_short_sleep_brings_all_of_it_back() {
        let (mut habit, whole) = (Habit::default(), looking(Wait::HYBRID));
        for _ in 0..100 {
            habit.after_sleep(Wait::HYBRID, LONG);
        }
        assert_eq!(looking(habit.after_sleep(Wait::HYBRID, whole)), whole);
    }

    #[test]
    fn ways_of_waiting_without_a_choice_stay_as_they_are() {
        let mut habit = Habit::default();
        for _ in 0..100 {
            assert_eq!(habit.after_sleep(Wait::Block, LONG), Wait::Block);
            assert_eq!(habit.after_sleep(Wait::Spin, LONG), Wait::Spin);
        }
    }
}
