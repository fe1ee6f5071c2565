package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/** A message, read in place. Closing it gives its room back to the producer. */
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
     * Returns the message, which is read-only. It must not be read after {@link #close()}: the bytes then belong to
     * another message.
     *
     * @return the bytes
     * @throws IllegalStateException if it was closed
     */
    public MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("the sample is closed");
        }
        return consumer.payload(length);
    }

    /**
     * Returns the length.
     *
     * @return bytes
     */
    public int length() {
        return length;
    }

    /**
     * Keeps the message while later ones are received, as many as the ring has room for. The message counts as
     * received, and the sample is closed. If the ring is full, the producer waits until the oldest held message is
     * released. A consumer that holds the whole ring waits for messages that cannot arrive ({@link
     * Consumer#holdsUp()}).
     *
     * @return the message, which must be closed when it is no longer needed
     * @throws IllegalStateException if the sample or the consumer is closed
     */
    public Held hold() {
        if (done) {
            throw new IllegalStateException("the sample is closed");
        }
        Held held = consumer.hold(this, at, length);
        done = true;
        return held;
    }

    /** Releases the message. Further calls have no effect. */
    @Override
    public void close() {
        done = true;
        consumer.release(this, at + Frame.occupied(length), 1);
    }
}
