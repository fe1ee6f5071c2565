package dev.thalweg.transfer;

/** What a transfer shall take little of. The constants are in the order of {@code tw_prefer} in {@code thalweg.h}. */
public enum Prefer {
    /** Time on the clock. */
    WALL,
    /** Processor time. */
    CPU,
    /** Memory. */
    MEMORY
}
