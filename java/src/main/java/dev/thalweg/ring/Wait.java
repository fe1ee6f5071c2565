package dev.thalweg.ring;

import java.time.Duration;

/** How an end waits for the other. */
public sealed interface Wait {
    /** Looks again and again: the shortest delay, and a processor for itself. */
    Wait SPIN = new Spin();
    /** Sleeps at once. */
    Wait BLOCK = new Block();
    /**
     * Looks for about as long as a sleep and a wake-up take, then sleeps: that costs at most twice what the better
     * choice would have cost. Less, or not at all, while that ends in sleeps all the same. Where both ends have one
     * processor between them, nobody spins.
     */
    Wait HYBRID = new Hybrid(Duration.ofNanos(50_000));

    /** As {@link #SPIN}. */
    record Spin() implements Wait {}

    /** As {@link #BLOCK}. */
    record Block() implements Wait {}

    /**
     * Looks for so long at most, then sleeps.
     *
     * @param spin how long to look, while that ends waits
     */
    record Hybrid(Duration spin) implements Wait {}
}
