package dev.thalweg.transfer;

import java.time.Duration;

/**
 * The result of a transfer.
 *
 * @param bytes     number of bytes moved
 * @param lost      number of bytes that were read from a source without an offset and not delivered
 * @param wall      wall time
 * @param mechanism name of the mechanism that moved most bytes, as in {@code thalweg list}
 */
public record Report(long bytes, long lost, Duration wall, String mechanism) {}
