package dev.thalweg.ring;

import java.util.TreeSet;

/**
 * The room of a ring that its consumer still holds. The tail stays at the oldest held message, whatever was released
 * after it. Requires the monitor of the {@link End}, except for {@link #tail()}.
 */
final class Holds {
    /** The tail does not move. */
    static final long STAYS = -1;

    /** Positions of the held messages. */
    private final TreeSet<Long> held = new TreeSet<>();
    /** Everything before this position that is not held was released. */
    private long passed;
    /** The published tail. */
    private volatile long told;
    /** The tail and the producer's sleep at the last query. */
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

    /** Releases everything before a position that is not held; returns the tail to publish. */
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
     * Returns true if the producer has slept twice since the first call for the current tail. It may begin one sleep
     * before it sees the tail, but not two.
     *
     * @param waiting the value of the producer's word of that name
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
