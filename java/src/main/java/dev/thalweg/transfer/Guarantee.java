package dev.thalweg.transfer;

/** What a transfer will not give up for speed. The constants are in the order of the bits of {@code thalweg.h}. */
public enum Guarantee {
    /** Later writes to the source never show in the sink. */
    STABLE,
    /** Source and sink share no page afterwards. */
    PRIVATE,
    /** On stable storage when the transfer ends. */
    DURABLE
}
