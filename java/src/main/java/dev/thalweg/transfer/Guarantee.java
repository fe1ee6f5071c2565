package dev.thalweg.transfer;

/**
 * Guarantees that a transfer keeps even if a faster mechanism does not. The constants are in the order of the bits in
 * {@code thalweg.h}.
 */
public enum Guarantee {
    /** Later writes to the source never appear in the sink. */
    STABLE,
    /** Source and sink share no pages afterwards. */
    PRIVATE,
    /** The data is on stable storage when the transfer ends. */
    DURABLE
}
