package dev.thalweg.ring;

import java.util.TreeSet;

/**
 * The messages that a consumer still holds in a ring. The tail stays at the oldest held message, even if later messages
 * were released. Requires the monitor of the {@link End}, except for {@link #tail()}.
 */
final class Holds {
    /** Result of a release that does not move the tail. */
    static final long STAYS = -1;

    /** Positions of the held messages. */
    private final TreeSet<Long> held = new TreeSet<>();
    /** End of the released messages: everything before this position is either held or released. */
    private long passed;
    /** The published tail. */
    private volatile long told;
    /** The tail at the first query of {@link #sleepsOn}. {@code asked} is the producer's word {@code waiting} then. */
    private long askedAt = STAYS;
    private int asked;

    Holds(long tail) {
        passed = tail;
        told = tail;
    }

    /** Holds the message at a position that was not released. */
    void hold(long at) {
        held.add(at);
    }

    /** Releases all messages before a position, except held ones; returns the tail to publish. */
    long pass(long to) {
        passed = to;
        return moved();
    }

    /** Releases a held message; returns the tail to publish. */
    long giveBack(long at) {
        held.remove(at);
        return moved();
    }

    int count() {
        return held.size();
    }

    long tail() {
        return told;
    }

    /**
     * Returns true if the producer has slept twice since the first call for the current tail. The producer may begin
     * one sleep before it sees the tail, but not two.
     *
     * @param waiting the value of the producer's word {@code waiting}
     */
    boolean sleepsOn(int waiting) {
        if (askedAt != told) {
            askedAt = told;
            asked = waiting;
            return false;
        }
        boolean sleepsOn = End.sleepsBetween(asked, waiting) >= 2;
        if (sleepsOn) {
            askedAt = STAYS;
        }
        return sleepsOn;
    }

    private long moved() {
        long oldest = held.isEmpty() ? passed : Math.min(passed, held.first());
        if (oldest <= told) {
            return STAYS;
        }
        told = oldest;
        return oldest;
    }
}
