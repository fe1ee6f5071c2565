//! Decides how long a consumer pauses between two checks for a message, while messages arrive quickly.
//!
//! Each check takes the cache line that the producer is about to write. If the consumer checks after each message, both
//! ends pay for several transfers of cache lines per message. A consumer that pauses briefly finds several messages at
//! once, and pays only once. The best pause is not known in advance. If the producer waits for replies, any pause is a
//! loss. Therefore the consumer counts the messages found per check. It lengthens the pause only while this increases
//! the count, and stops at [`ENOUGH`].

/// Number of successful checks after which the length of the pause is chosen again.
const EPOCH: u64 = 64;
/// The shortest pause, in spin-loop hints. Each longer pause is twice the next shorter one.
const SHORTEST: u32 = 8;
const LONGEST: u32 = 256;
/// From this pause on, a doubled pause is kept only if it finds more messages. With slow messages, shorter pauses make
/// no measurable difference.
const COMPARED_FROM: u32 = 32;
/// Number of messages per check from which on a longer pause gains little.
const ENOUGH: u64 = 32;
/// Number of messages per check above which the pause delays messages unnecessarily.
const MANY: u64 = 128;
/// Number of epochs ([`EPOCH`] checks each) without a pause, after pausing has failed. Each further failure doubles this.
const REST: u32 = 16;
const MOST_FAILURES: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct PollPace {
    /// Length of a pause, in spin-loop hints.
    pauses: u32,
    looks: u64,
    /// Number of messages received before the last successful check.
    last: u64,
    /// Number of messages received before this epoch.
    from: u64,
    /// Number of messages in the last epoch, if the pause was begun or doubled at the end of that epoch; otherwise 0.
    before: u64,
    rest: u32,
    failures: u32,
}

impl PollPace {
    /// Returns the length of the pause before the next check: 0 after a check that found many messages, because as many
    /// may have arrived since then. `received` is the number of messages received.
    #[inline]
    pub fn pauses(&self, received: u64) -> u32 {
        if received - self.last < ENOUGH { self.pauses } else { 0 }
    }

    /// Records a check that found messages. `received` is the number of messages received before this check.
    #[inline]
    pub fn found(&mut self, received: u64) {
        self.looks += 1;
        self.last = received;
        if self.looks == EPOCH {
            self.decide(received);
        }
    }

    #[cold]
    fn decide(&mut self, received: u64) {
        let came = received - self.from;
        let before = std::mem::take(&mut self.before);
        (self.looks, self.from) = (0, received);
        if came <= EPOCH + EPOCH / 4 {
            // Each check finds about one message, so a pause would only delay it.
            self.pauses = 0;
            self.rest = self.rest.saturating_sub(1);
        } else if self.pauses == 0 {
            match self.rest.checked_sub(1) {
                Some(rest) => self.rest = rest,
                None => self.stay_away(SHORTEST, came),
            }
        } else if self.pauses >= COMPARED_FROM && came < before + before / 8 {
            // The doubled pause did not find more messages, so the producer waits for this consumer.
            (self.pauses, self.rest) = (0, REST << self.failures);
            self.failures = (self.failures + 1).min(MOST_FAILURES);
        } else if came < ENOUGH * EPOCH {
            if self.pauses < LONGEST {
                self.stay_away(2 * self.pauses, came);
            } else {
                // Return to half of the longest pause, so that the next decisions compare the two again.
                self.pauses = LONGEST / 2;
            }
        } else {
            self.failures = 0;
            if came > MANY * EPOCH {
                self.pauses = if self.pauses > SHORTEST { self.pauses / 2 } else { 0 };
            }
        }
    }

    fn stay_away(&mut self, pauses: u32, came: u64) {
        (self.pauses, self.before) = (pauses, came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `looks` checks (whole epochs). Each check finds `finds(pauses, look)` messages. Returns the final
    /// pause and the sum of all pauses.
    fn live(pace: &mut PollPace, looks: u64, finds: impl Fn(u64, u64) -> u64) -> (u32, u64) {
        let (mut received, mut passed) = (pace.from, 0);
        for look in 0..looks {
            passed += u64::from(pace.pauses);
            received += finds(u64::from(pace.pauses), look);
            pace.found(received);
        }
        (pace.pauses, passed)
    }

    /// Simulates a producer that needs the time of `each` hints for a message. Without a pause, a check finds one or
    /// two messages.
    fn stream(each: u64) -> impl Fn(u64, u64) -> u64 {
        move |pauses, look| 1 + (look & 1) + pauses / each
    }

    fn ping_pong(_: u64, _: u64) -> u64 {
        1
    }

    /// Simulates a producer that has at most four messages in flight.
    fn window(pauses: u64, look: u64) -> u64 {
        if pauses > 0 { 4 } else { 1 + look % 4 }
    }

    #[test]
    fn of_a_stream_a_look_soon_finds_enough_and_not_many_more() {
        for each in [1, 3, 7] {
            let mut pace = PollPace::default();
            let (pauses, _) = live(&mut pace, 16 * EPOCH, stream(each));
            let found = stream(each)(u64::from(pauses), 0);
            assert!((ENOUGH..=MANY).contains(&found), "{found} at a look, after {pauses} pauses");
            assert_eq!(live(&mut pace, 16 * EPOCH, stream(each)).0, pauses, "it stays so");
        }
    }

    #[test]
    fn after_a_check_that_found_many_the_next_one_follows_at_once() {
        let mut pace = PollPace { pauses: SHORTEST, ..PollPace::default() };
        pace.found(100);
        assert_eq!((pace.pauses(100 + ENOUGH - 1), pace.pauses(100 + ENOUGH)), (SHORTEST, 0));
    }

    #[test]
    fn a_question_and_its_answer_are_never_late() {
        assert_eq!(live(&mut PollPace::default(), 15_625 * EPOCH, ping_pong), (0, 0));
    }

    #[test]
    fn a_stream_that_becomes_questions_is_looked_at_at_once_again() {
        let mut pace = PollPace::default();
        live(&mut pace, 16 * EPOCH, stream(3));
        assert!(pace.pauses > 0);
        // The epoch in progress may still contain messages of the stream.
        assert_eq!(live(&mut pace, 2 * EPOCH, ping_pong).0, 0);
    }

    #[test]
    fn a_producer_that_waits_for_answers_is_hardly_kept_waiting() {
        let mut pace = PollPace::default();
        live(&mut pace, 10_000 * EPOCH, window);
        let (_, passed) = live(&mut pace, 15_625 * EPOCH, window);
        assert!(passed < 1_000_000 / 10, "{passed} pauses in a million looks");
    }

    #[test]
    fn a_stream_that_becomes_answers_is_left_alone_no_longer() {
        let mut pace = PollPace::default();
        assert_eq!(live(&mut pace, 64 * EPOCH, stream(12)).0, LONGEST);
        assert_eq!(live(&mut pace, 3 * EPOCH, window).0, 0);
    }

    #[test]
    fn rare_large_messages_are_not_stayed_away_from() {
        // Messages are so slow that even the longest pause finds only one or two per check.
        let mut pace = PollPace::default();
        let (_, passed) = live(&mut pace, 15_625 * EPOCH, |_, look| 1 + (look & 1));
        assert!(passed < 1_000_000 / 10, "{passed} pauses in a million looks");
    }
}
