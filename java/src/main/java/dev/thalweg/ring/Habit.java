package dev.thalweg.ring;

import java.time.Duration;

/**
 * How long looking is worth while, by how the last waits of this end went. Where messages are rare, or more ends than
 * processors wait for each other, looking ends in a sleep all the same, and took the processor from other threads that
 * could have used it: one of them may be who is waited for.
 */
final class Habit {
    /** So many long sleeps, without a short one between them, halve the looking, so often at most. */
    static final int WAITS = 8;

    static final int HALVINGS = 4;
    /** Sleeps by which looking first, and then sleeping at once, are measured. */
    static final int TRIAL = 32;
    /** Sleeps for which what took less time is kept. */
    static final int KEPT = 16 * TRIAL;

    /** Longer looks are like this one: nanoseconds of any length are not counted in a long. */
    private static final Duration LONGEST = Duration.ofHours(1);

    /** What an end does before it sleeps, and whether that is being measured. */
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
    /** Of this phase: its sleeps, the nanoseconds from one to the next, and how many waits there had been before it. */
    private int sleeps;

    private long time;
    private long waitsBefore;
    /** The end of the last sleep, if there was one. */
    private long last;

    private boolean slept;
    /** Nanoseconds of a wait, when looking was measured last. */
    private long looking;

    /**
     * How the next wait looks and sleeps, after a sleep between two times of the clock; waits counts those that did not
     * find something at their first look.
     */
    Wait afterSleep(Wait wait, long begin, long end, long waits) {
        if (!(wait instanceof Wait.Hybrid(Duration whole))) {
            return wait;
        }
        long spin = whole.compareTo(LONGEST) > 0 ? LONGEST.toNanos() : whole.toNanos();
        if (phase.looks) {
            // More looking would have ended it, or nearly: some of the time is the wake-up's.
            inVain = end - begin < 2 * spin ? 0 : Math.min(inVain + 1, WAITS * HALVINGS);
        }
        // A pause between messages says nothing of either way.
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
                // Looking ends most waits.
                if (waits / 2 > sleeps) {
                    yield Phase.LOOKING;
                }
                looking = each;
                yield Phase.SLEEPING;
            }
            // Without a clear gain it looks: an idle processor wakes up late.
            case SLEEPING -> each * 5 > looking * 4 ? Phase.KEEP_LOOKING : Phase.KEEP_SLEEPING;
            case KEEP_LOOKING, KEEP_SLEEPING -> Phase.LOOKING;
        };
    }
}
