package dev.thalweg.ring;

import java.time.Duration;

/** Until when to wait. */
final class Deadline {
    /** For ever. */
    static final Deadline NEVER = new Deadline(0);
    /** Not at all. */
    static final Deadline NOW = new Deadline(0);

    private final long at;

    private Deadline(long at) {
        this.at = at;
    }

    /** So long from now; what the clock cannot count is for ever. */
    static Deadline in(Duration patience) {
        try {
            // Half of what a long holds: differences of the clock must not overflow.
            long nanos = patience.toNanos();
            return nanos > Long.MAX_VALUE / 2 ? NEVER : new Deadline(System.nanoTime() + Math.max(nanos, 0));
        } catch (ArithmeticException tooLong) {
            return patience.isNegative() ? NOW : NEVER;
        }
    }

    /** This one, or so long from now if that is sooner. */
    Deadline orIn(Duration patience) {
        Deadline other = in(patience);
        return other.left() < left() ? other : this;
    }

    boolean isForEver() {
        return this == NEVER;
    }

    boolean isOver() {
        return this != NEVER && left() == 0;
    }

    /** Nanoseconds left, at least 0; the most there is for ever. */
    long left() {
        if (this == NEVER) {
            return Long.MAX_VALUE;
        }
        return this == NOW ? 0 : Math.max(at - System.nanoTime(), 0);
    }
}
