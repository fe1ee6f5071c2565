package dev.thalweg.transfer;

/**
 * The resource that a transfer should save. The constants are in the order of {@code tw_prefer} in {@code thalweg.h}.
 */
public enum Prefer {
    /** Wall time. */
    WALL,
    /** CPU time. */
    CPU,
    /** Memory. */
    MEMORY
}
