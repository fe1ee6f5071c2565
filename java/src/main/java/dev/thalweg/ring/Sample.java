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

    /** Releases the message. Once is enough; more does no harm. */
    @Override
    public void close() {
        done = true;
        consumer.release(this, at + Frame.occupied(length), 1);
    }
}
