package dev.thalweg.ring;

import java.time.Duration;

/**
 * Adapts the polling time of an end to its recent waits. If messages are rare, or more ends than cores wait for each
 * other, polling ends in a sleep anyway. Polling then only takes CPU time from threads that the end may wait for.
 */
final class Habit {
    /** {@code WAITS} consecutive long sleeps halve the polling time, at most {@code HALVINGS} times. */
    static final int WAITS = 8;

    static final int HALVINGS = 4;
    /** Number of sleeps in each of the two measurements: first of polling, then of sleeping at once. */
    static final int TRIAL = 32;
    /** Number of sleeps for which the faster variant is kept. */
    static final int KEPT = 16 * TRIAL;

    /** Upper limit of the polling time, so that nanoseconds do not overflow. */
    private static final Duration LONGEST = Duration.ofHours(1);

    /** Phases of an end. The end measures polling, then sleeping at once, and then keeps the faster one. */
    private enum Phase {
        LOOKING(TRIAL, true),
        SLEEPING(TRIAL, false),
        KEEP_LOOKING(KEPT, true),
        KEEP_SLEEPING(KEPT, false);

        final int length;
        final boolean looks;

        Phase(int length, boolean looks) {
            this.length = length;
            this.looks = looks;
        }
    }

    /** Long sleeps since the last short one, at most WAITS * HALVINGS. */
    private int inVain;

    private Phase phase = Phase.LOOKING;
    /** Sleeps in this phase. {@code time}: nanoseconds between them. {@code waitsBefore}: waits before the phase. */
    private int sleeps;

    private long time;
    private long waitsBefore;
    /** End of the last sleep, if any. */
    private long last;

    private boolean slept;
    /** Average time between waits in the last measurement of polling, in nanoseconds. */
    private long looking;

    /**
     * Returns how the next wait polls and sleeps, after a sleep from {@code begin} to {@code end}. {@code waits} counts
     * the waits that the first look did not end.
     */
    Wait afterSleep(Wait wait, long begin, long end, long waits) {
        if (!(wait instanceof Wait.Hybrid(Duration whole))) {
            return wait;
        }
        long spin = whole.compareTo(LONGEST) > 0 ? LONGEST.toNanos() : whole.toNanos();
        if (phase.looks) {
            // A short sleep means that slightly more polling would have sufficed. The limit is twice spin, because the
            // time of a sleep includes the wake-up.
            inVain = end - begin < 2 * spin ? 0 : Math.min(inVain + 1, WAITS * HALVINGS);
        }
        // A long pause between messages does not depend on the variant, so the time is capped.
        time += slept ? Math.min(end - last, 16 * spin) : 0;
        last = end;
        slept = true;
        if (++sleeps >= phase.length) {
            phase = next(waits - waitsBefore);
            sleeps = 0;
            time = 0;
            waitsBefore = waits;
        }
        return new Wait.Hybrid(phase.looks ? whole.dividedBy(1L << inVain / WAITS) : Duration.ZERO);
    }

    private Phase next(long waits) {
        long each = time / Math.max(waits, sleeps);
        return switch (phase) {
            case LOOKING -> {
                // Polling ends most waits without a sleep, so there is nothing to compare.
                if (waits / 2 > sleeps) {
                    yield Phase.LOOKING;
                }
                looking = each;
                yield Phase.SLEEPING;
            }
            // Chooses to sleep at once only if that is clearly faster, because an idle processor wakes up late.
            case SLEEPING -> each * 5 > looking * 4 ? Phase.KEEP_LOOKING : Phase.KEEP_SLEEPING;
            case KEEP_LOOKING, KEEP_SLEEPING -> Phase.LOOKING;
        };
    }
}
