package dev.thalweg.ring;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * Messages that become visible together, for the price of one. Closed without {@link #commit()}, none of them ever was.
 */
public final class Batch implements AutoCloseable {
    private final Producer producer;
    /** Where the next one begins. */
    private long at;
    private long messages;

    Batch(Producer producer, long at) {
        this.producer = producer;
        this.at = at;
        producer.lent(this);
    }

    /**
     * Room for one more message. It begins at a multiple of 32 and holds whatever was there before; it must not be
     * written after {@link #commit()} or {@link #close()}.
     *
     * @param length bytes
     * @return the room; null if the ring has none now: commit, and it will come
     * @throws IOException           as {@link Producer#loan(long)}
     * @throws IllegalStateException it was committed or closed, or the producer is closed
     */
    public MemorySegment loan(long length) throws IOException {
        MemorySegment room = producer.extend(this, at, length);
        if (room != null) {
            at += Frame.occupied(length);
            messages++;
        }
        return room;
    }

    /**
     * Messages in it.
     *
     * @return how many
     */
    public long size() {
        return messages;
    }

    /**
     * Makes all of them visible at once; of none that is nothing.
     *
     * @throws IllegalStateException it was committed or closed already, or the producer is closed
     */
    public void commit() {
        producer.commit(this, at, messages);
    }

    /** Gives the room back, if it was not committed. */
    @Override
    public void close() {
        producer.givenBack(this);
    }
}
