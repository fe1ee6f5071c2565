package dev.thalweg.ring;

import java.util.TreeSet;

/**
 * Which room of a ring its consumer still holds: the tail stands at the oldest message that is held, however many behind
 * it have been given back. For who has the monitor of the {@link End}, but for {@link #tail()}.
 */
final class Holds {
    /** The tail does not move. */
    static final long STAYS = -1;

    /** Where the messages begin that are held. */
    private final TreeSet<Long> held = new TreeSet<>();
    /** What lies before this and is not held has been given back. */
    private long passed;
    /** The tail as the producer was told. */
    private volatile long told;
    /** The tail, and the producer's sleep, when it was last asked whether that waits. */
    private long askedAt = STAYS;
    private int asked;

    Holds(long tail) {
        passed = tail;
        told = tail;
    }

    /** Keeps the room of the message that begins at a position, which was not given back. */
    void hold(long at) {
        held.add(at);
    }

    /** Gives back everything before a position that is not held; the tail to publish. */
    long pass(long to) {
        passed = to;
        return moved();
    }

    /** Gives back a message that was held; the tail to publish. */
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
     * Whether a producer, whose word {@code waiting} this is, sleeps on although it was woken at this tail. It may begin
     * one sleep before it sees the tail, not two.
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
