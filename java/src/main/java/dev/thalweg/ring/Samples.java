package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/** The messages that were there, one after the other. Closing it releases those that were shown; the others stay. */
public final class Samples implements AutoCloseable {
    private final Consumer consumer;
    private final long received;
    /** Where the next one begins. */
    private long at;
    private long shown;

    Samples(Consumer consumer, long at, long received) {
        this.consumer = consumer;
        this.at = at;
        this.received = received;
    }

    /**
     * The next message, which cannot be written. It must not be read after {@link #close()}, and where the producer is
     * not trusted not after the next call: the bytes are another message's then.
     *
     * @return the bytes; null after the last
     * @throws RingException.Corrupt the producer wrote what cannot be
     * @throws IllegalStateException they are closed, or the consumer is
     */
    public MemorySegment next() throws RingException.Corrupt {
        MemorySegment message = consumer.payloadOf(this, at, received + shown);
        if (message != null) {
            at += Frame.occupied(message.byteSize());
            shown++;
        }
        return message;
    }

    /** Releases the messages that were shown, at once. Once is enough; more does no harm. */
    @Override
    public void close() {
        consumer.release(this, at, shown);
    }
}
