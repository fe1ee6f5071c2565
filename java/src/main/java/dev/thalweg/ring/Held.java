package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/**
 * A message that is kept while later ones are received ({@link Sample#hold()}). Closing it, in any order and from any
 * thread, gives its room back to the producer. Until then its room and all room after it stay occupied.
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
     * Returns the message, which is read-only. It must not be read after {@link #close()}: the bytes then belong to
     * another message. After {@link Consumer#close()} reading it throws, unless the producer is not trusted, because
     * such messages are copied.
     *
     * @return the bytes
     * @throws IllegalStateException if it was closed
     */
    public synchronized MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("the message was released");
        }
        return bytes;
    }

    /**
     * Returns the length.
     *
     * @return bytes
     */
    public int length() {
        return (int) bytes.byteSize();
    }

    /** Releases the message. Further calls have no effect. */
    @Override
    public synchronized void close() {
        if (!done) {
            done = true;
            consumer.giveBack(at);
        }
    }
}
