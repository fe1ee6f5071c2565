package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/**
 * The available messages, in order. Closing it releases the messages that {@link #next()} returned; the others stay.
 */
public final class Samples implements AutoCloseable {
    private final Consumer consumer;
    private final long received;
    /** Position of the next message. */
    private long at;
    private long shown;

    Samples(Consumer consumer, long at, long received) {
        this.consumer = consumer;
        this.at = at;
        this.received = received;
    }

    /**
     * Returns the next message, which is read-only. It must not be read after {@link #close()}, and, if the producer is
     * not trusted, not after the next call: the bytes then belong to another message.
     *
     * @return the bytes; null after the last
     * @throws RingException.Corrupt if the producer violated the protocol
     * @throws IllegalStateException if the samples or the consumer are closed
     */
    public MemorySegment next() throws RingException.Corrupt {
        MemorySegment message = consumer.payloadOf(this, at, received + shown);
        if (message != null) {
            at += Frame.occupied(message.byteSize());
            shown++;
        }
        return message;
    }

    /** Releases the returned messages together. Further calls have no effect. */
    @Override
    public void close() {
        consumer.release(this, at, shown);
    }
}
