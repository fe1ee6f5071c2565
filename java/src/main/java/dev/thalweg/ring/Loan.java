package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/**
 * Room for one message. The consumer sees the message after {@link #commit()}; closing the loan without that discards
 * it.
 */
public final class Loan implements AutoCloseable {
    private final Producer producer;
    private final long length;
    private boolean done;

    Loan(Producer producer, long length) {
        this.producer = producer;
        this.length = length;
        producer.lent(this);
    }

    /**
     * Returns the memory of the message. It begins at a multiple of 32 and has arbitrary previous contents. It must not
     * be written after {@link #commit()} or {@link #close()}: the bytes then belong to another message.
     *
     * @return the bytes
     * @throws IllegalStateException if it was committed or closed
     */
    public MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("the loan was committed or closed already");
        }
        return producer.payload(length);
    }

    /**
     * Makes the message visible.
     *
     * @throws IllegalStateException if it was committed or closed, or the producer is closed
     */
    public void commit() {
        done = true;
        producer.commit(this, length);
    }

    /** Discards the message if it was not committed. */
    @Override
    public void close() {
        done = true;
        producer.givenBack(this);
    }
}
