package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/**
 * A message that is kept while others are received ({@link Sample#hold()}). Closing it, in any order and from any thread,
 * gives its room back to the producer; until then its room and all behind it stay taken.
 */
public final class Held implements AutoCloseable {
    private final Consumer consumer;
    private final long at;
    private final MemorySegment bytes;
    private boolean done;

    Held(Consumer consumer, long at, MemorySegment bytes) {
        this.consumer = consumer;
        this.at = at;
        this.bytes = bytes;
    }

    /**
     * The message, which cannot be written. It must not be read after {@link #close()}: the bytes are another message's
     * then. After {@link Consumer#close()} reading it throws, unless the producer is not trusted, whose messages are
     * copied.
     *
     * @return the bytes
     * @throws IllegalStateException it was closed
     */
    public synchronized MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("the message was given back");
        }
        return bytes;
    }

    /**
     * How long it is.
     *
     * @return bytes
     */
    public int length() {
        return (int) bytes.byteSize();
    }

    /** Gives the message back. Once is enough; more does no harm. */
    @Override
    public synchronized void close() {
        if (!done) {
            done = true;
            consumer.giveBack(at);
        }
    }
}
