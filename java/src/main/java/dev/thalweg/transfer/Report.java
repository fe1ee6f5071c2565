package dev.thalweg.transfer;

import java.time.Duration;

/**
 * What a transfer did.
 *
 * @param bytes     moved
 * @param lost      taken from a source that cannot be rewound, and not delivered
 * @param wall      time on the clock
 * @param mechanism the one that moved most, by its name in {@code thalweg list}
 */
public record Report(long bytes, long lost, Duration wall, String mechanism) {}
