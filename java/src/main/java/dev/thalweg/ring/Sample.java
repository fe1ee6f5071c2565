package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/** One message, where it lies. Closing it gives its room back to the producer. */
public final class Sample implements AutoCloseable {
    private final Consumer consumer;
    private final long at;
    private final int length;
    private boolean done;

    Sample(Consumer consumer, long at, int length) {
        this.consumer = consumer;
        this.at = at;
        this.length = length;
    }

    /**
     * The message, which cannot be written. It must not be read after {@link #close()}: the bytes are another message's
     * then.
     *
     * @return the bytes
     * @throws IllegalStateException it was closed
     */
    public MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("the sample is closed");
        }
        return consumer.payload(length);
    }

    /**
     * How long it is.
     *
     * @return bytes
     */
    public int length() {
        return length;
    }

    /**
     * Keeps the message while others are received, as many as the ring has room for. It counts as received, and the
     * sample is closed. A producer whose ring is full waits until the oldest is given back; a consumer that waits
     * while it holds the whole ring waits in vain ({@link Consumer#holdsUp()}).
     *
     * @return the message, to be closed when it is no longer needed
     * @throws IllegalStateException the sample, or the consumer, is closed
     */
    public Held hold() {
        if (done) {
            throw new IllegalStateException("the sample is closed");
        }
        Held held = consumer.hold(this, at, length);
        done = true;
        return held;
    }

    /** Releases the message. Once is enough; more does no harm. */
    @Override
    public void close() {
        done = true;
        consumer.release(this, at + Frame.occupied(length), 1);
    }
}
