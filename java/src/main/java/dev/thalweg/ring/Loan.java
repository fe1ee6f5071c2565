package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;

/** Room for one message. The consumer sees it after {@link #commit()}; closed without that, it never was. */
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
     * Where the message is written. It begins at a multiple of 32 and holds whatever was there before. It must not be
     * written after {@link #commit()} or {@link #close()}: the bytes are another message's then.
     *
     * @return the bytes
     * @throws IllegalStateException it was committed or closed
     */
    public MemorySegment segment() {
        if (done) {
            throw new IllegalStateException("committed or given back already");
        }
        return producer.payload(length);
    }

    /**
     * Makes the message visible.
     *
     * @throws IllegalStateException it was committed or closed already, or the producer is closed
     */
    public void commit() {
        done = true;
        producer.commit(this, length);
    }

    /** Gives the room back, if it was not committed. */
    @Override
    public void close() {
        done = true;
        producer.givenBack(this);
    }
}
