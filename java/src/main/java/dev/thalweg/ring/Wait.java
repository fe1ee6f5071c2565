package dev.thalweg.ring;

import java.time.Duration;

/** Method of waiting for the peer. */
public sealed interface Wait {
    /** Polls without pause: the shortest delay, but uses a whole processor. */
    Wait SPIN = new Spin();
    /** Sleeps at once. */
    Wait BLOCK = new Block();
    /**
     * Polls for about as long as a sleep and a wake-up take, then sleeps. Therefore a wait costs at most twice as much
     * as with the better of the two methods. If most waits end in a sleep anyway, the polling time is shortened, down
     * to zero. If both ends share a single processor, neither polls.
     */
    Wait HYBRID = new Hybrid(Duration.ofNanos(50_000));

    /** See {@link #SPIN}. */
    record Spin() implements Wait {}

    /** See {@link #BLOCK}. */
    record Block() implements Wait {}

    /**
     * Polls for at most this time, then sleeps.
     *
     * @param spin maximum polling time
     */
    record Hybrid(Duration spin) implements Wait {}
}
