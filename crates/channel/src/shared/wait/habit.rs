//! Adapts the polling time of an end to its last waits. If messages are rare, or if more ends wait for each other than
//! there are processors, polling usually fails and ends in a sleep. It then only takes the processor from other
//! threads, one of which may be the peer.

use super::Wait;
use std::time::{Duration, Instant};

/// Number of consecutive long sleeps after which the polling time is halved.
const LONG_SLEEPS: u32 = 8;
/// Maximum number of halvings. The remaining short poll costs almost nothing, and detects when messages arrive quickly
/// again.
const HALVINGS: u32 = 4;
/// Number of sleeps per measurement. The first measurement is with polling, the second without.
const TRIAL: u32 = 32;
/// Number of sleeps for which the faster of the two is kept, before they are measured again.
const KEPT: u32 = 16 * TRIAL;

/// Behavior of an end before it sleeps, and whether it is being measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HabitPhase {
    /// Polls before it sleeps, while the time per wait is measured.
    #[default]
    Looking,
    /// Sleeps at once, while the time per wait is measured.
    Sleeping,
    /// Uses the faster of the two. `looks` is `true` if that is polling.
    Keeping { looks: bool },
}

impl HabitPhase {
    fn looks(self) -> bool {
        !matches!(self, Self::Sleeping | Self::Keeping { looks: false })
    }
}

/// Statistics on the waits of one end.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Number of long sleeps since the last short one, at most `LONG_SLEEPS * HALVINGS`.
    in_vain: u32,
    phase: HabitPhase,
    /// Statistics of this phase: the number of sleeps, the total time between their ends, and the number of waits
    /// before this phase.
    sleeps: u32,
    time: Duration,
    waits_before: u64,
    /// End of the last sleep.
    last: Option<Instant>,
    /// Average time per wait in the last measurement of polling.
    looking: Duration,
}

impl Habit {
    /// Returns how the next wait polls and sleeps. The last sleep lasted from `begin` to `end`. `waits` is the number
    /// of waits that found nothing at the first check.
    pub fn after_sleep(&mut self, wait: Wait, begin: Instant, end: Instant, waits: u64) -> Wait {
        let Wait::Hybrid { spin } = wait else { return wait };
        if self.phase.looks() {
            // A sleep is short if a little more polling would have avoided it. The limit is twice `spin`, because the
            // wake-up itself is a part of the sleep.
            let is_short = end - begin < spin.saturating_mul(2);
            self.in_vain =
                if is_short { 0 } else { (self.in_vain + 1).min(LONG_SLEEPS * HALVINGS) };
        }
        // The time is limited, because a long pause between messages shows no difference between the two methods.
        let since =
            self.last.map_or(Duration::ZERO, |last| end - last).min(spin.saturating_mul(16));
        (self.last, self.time, self.sleeps) = (Some(end), self.time + since, self.sleeps + 1);
        let length = if matches!(self.phase, HabitPhase::Keeping { .. }) { KEPT } else { TRIAL };
        if self.sleeps >= length {
            self.phase = self.next_phase(waits);
            (self.sleeps, self.time, self.waits_before) = (0, Duration::ZERO, waits);
        }
        let looks = u32::from(self.phase.looks());
        Wait::Hybrid { spin: spin * looks / (1 << (self.in_vain / LONG_SLEEPS)) }
    }

    fn next_phase(&mut self, waits: u64) -> HabitPhase {
        let waits = u32::try_from(waits - self.waits_before).unwrap_or(u32::MAX);
        let each = self.time / waits.max(self.sleeps);
        match self.phase {
            // Polling ends most waits without a sleep, so measuring the other method is not worthwhile.
            HabitPhase::Looking if waits / 2 > self.sleeps => HabitPhase::Looking,
            HabitPhase::Looking => {
                self.looking = each;
                HabitPhase::Sleeping
            }
            // Sleep at once only if that is clearly faster, because an idle processor wakes up late.
            HabitPhase::Sleeping => HabitPhase::Keeping { looks: each * 5 > self.looking * 4 },
            HabitPhase::Keeping { .. } => HabitPhase::Looking,
        }
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

    /// A waiting end with a simulated clock.
    struct Waiting {
        habit: Habit,
        now: Instant,
        waits: u64,
    }

    impl Waiting {
        fn new() -> Self {
            Self { habit: Habit::default(), now: Instant::now(), waits: 0 }
        }

        /// Simulates a wait that ends in a sleep of this length.
        fn sleep(&mut self, time: Duration) -> Wait {
            self.waits += 1;
            let begin = self.now;
            self.now += time;
            self.habit.after_sleep(Wait::HYBRID, begin, self.now, self.waits)
        }

        /// Simulates a message that arrives after `looked` if this end polls, and after `slept` if it does not. Returns
        /// `true` if the end polls.
        fn wait(&mut self, looked: Duration, slept: Duration) -> bool {
            let looks = looking(self.sleep(slept)) > Duration::ZERO;
            self.now += if looks { looked.saturating_sub(slept) } else { Duration::ZERO };
            looks
        }
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn an_end_that_looks_in_vain_looks_less() {
        let (mut end, whole) = (Waiting::new(), looking(Wait::HYBRID));
        for waits in 1..TRIAL {
            let halvings = (waits / LONG_SLEEPS).min(HALVINGS);
            assert_eq!(looking(end.sleep(LONG)), whole / (1 << halvings), "after {waits}");
        }
        // With rare messages, neither method is faster. A short poll remains, except during measurements.
        let looks = (0..10 * KEPT).filter(|_| looking(end.sleep(LONG)) > Duration::ZERO).count();
        assert!(looks as u32 > 9 * KEPT, "{looks}");
    }

    #[test]
    fn a_short_sleep_brings_all_of_it_back() {
        let (mut end, whole) = (Waiting::new(), looking(Wait::HYBRID));
        for _ in 1..TRIAL - 1 {
            end.sleep(LONG);
        }
        end.habit.sleeps = 0;
        assert_eq!(looking(end.sleep(whole)), whole);
    }

    #[test]
    fn where_sleeping_at_once_takes_less_time_an_end_does_that() {
        let mut end = Waiting::new();
        let looks = (0..10 * KEPT).filter(|_| end.wait(200 * US, 80 * US)).count();
        assert!(looks < KEPT as usize, "{looks}");
    }

    #[test]
    fn where_looking_takes_less_time_it_stays() {
        let mut end = Waiting::new();
        let looks = (0..10 * KEPT).filter(|_| end.wait(60 * US, 59 * US)).count();
        assert!(looks > 9 * KEPT as usize, "{looks}");
    }

    #[test]
    fn an_end_that_finds_most_by_polling_does_not_sleep_at_once() {
        let mut end = Waiting::new();
        for _ in 0..10 * KEPT {
            end.waits += 9;
            assert!(end.wait(200 * US, 80 * US));
        }
    }

    #[test]
    fn ways_of_waiting_without_a_choice_stay_as_they_are() {
        let (mut habit, now) = (Habit::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(habit.after_sleep(Wait::Block, now, now + LONG, 1), Wait::Block);
            assert_eq!(habit.after_sleep(Wait::Spin, now, now + LONG, 1), Wait::Spin);
        }
    }

    #[test]
    fn no_time_to_look_is_too_long_or_too_short() {
        for spin in [Duration::MAX, Duration::ZERO] {
            let mut end = Waiting::new();
            for _ in 0..10 * KEPT {
                end.waits += 1;
                let begin = end.now;
                end.now += LONG;
                let time = (begin, end.now);
                looking(end.habit.after_sleep(Wait::Hybrid { spin }, time.0, time.1, end.waits));
            }
        }
    }
}
