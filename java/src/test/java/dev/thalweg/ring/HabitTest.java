package dev.thalweg.ring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Tests of {@link Habit} with a simulated clock. */
class HabitTest {
    private static final long SECOND = 1_000_000_000L;

    private final Habit habit = new Habit();
    private long now;
    private long waits;

    private Duration sleep(long nanos) {
        waits++;
        long begin = now;
        now += nanos;
        return ((Wait.Hybrid) habit.afterSleep(Wait.HYBRID, begin, now, waits)).spin();
    }

    /** Returns how many waits polled if a wait takes {@code looked} ns with polling and {@code slept} ns without. */
    private int looksOf(long looked, long slept) {
        int looks = 0;
        for (int n = 0; n < 10 * Habit.KEPT; n++) {
            if (sleep(slept).isPositive()) {
                looks++;
                now += looked - slept;
            }
        }
        return looks;
    }

    @Test
    void who_looks_in_vain_looks_less() {
        Duration whole = ((Wait.Hybrid) Wait.HYBRID).spin();
        for (int n = 1; n < Habit.TRIAL; n++) {
            assertEquals(whole.dividedBy(1L << n / Habit.WAITS), sleep(SECOND), "after " + n);
        }
    }

    @Test
    void where_sleeping_at_once_takes_less_time_an_end_does_that() {
        assertTrue(looksOf(200_000, 80_000) < Habit.KEPT);
    }

    @Test
    void where_looking_takes_less_time_it_stays() {
        assertTrue(looksOf(60_000, 59_000) > 9 * Habit.KEPT);
    }

    @Test
    void an_end_that_finds_most_by_polling_does_not_sleep_at_once() {
        for (int n = 0; n < 10 * Habit.KEPT; n++) {
            waits += 9;
            assertTrue(sleep(80_000).isPositive());
        }
    }

    @Test
    void no_time_to_look_is_too_long_or_too_short() {
        for (Duration spin : new Duration[] {Duration.ofSeconds(Long.MAX_VALUE), Duration.ZERO}) {
            for (int n = 0; n < 10 * Habit.KEPT; n++) {
                waits++;
                now += SECOND;
                habit.afterSleep(new Wait.Hybrid(spin), now - SECOND, now, waits);
            }
        }
    }

    @Test
    void ways_of_waiting_without_a_choice_stay_as_they_are() {
        assertSame(Wait.BLOCK, habit.afterSleep(Wait.BLOCK, 0, SECOND, 1));
        assertSame(Wait.SPIN, habit.afterSleep(Wait.SPIN, 0, SECOND, 1));
    }
}
