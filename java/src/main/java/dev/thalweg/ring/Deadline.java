package dev.thalweg.ring;

import java.time.Duration;

/** The time at which a wait ends. */
final class Deadline {
    /** No limit. */
    static final Deadline NEVER = new Deadline(0);
    /** Do not wait. */
    static final Deadline NOW = new Deadline(0);

    private final long at;

    private Deadline(long at) {
        this.at = at;
    }

    /** Returns the deadline after a duration; a duration beyond the range of the clock has no limit. */
    static Deadline in(Duration patience) {
        try {
            // Limits the value to half the range of a long, because differences of clock values must not overflow.
            long nanos = patience.toNanos();
            return nanos > Long.MAX_VALUE / 2 ? NEVER : new Deadline(System.nanoTime() + Math.max(nanos, 0));
        } catch (ArithmeticException tooLong) {
            return patience.isNegative() ? NOW : NEVER;
        }
    }

    /** Returns the earlier of this deadline and the one after a duration. */
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

    /** Returns the nanoseconds left, at least 0; {@link Long#MAX_VALUE} without a limit. */
    long left() {
        if (this == NEVER) {
            return Long.MAX_VALUE;
        }
        return this == NOW ? 0 : Math.max(at - System.nanoTime(), 0);
    }
}
