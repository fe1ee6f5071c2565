package dev.thalweg.ring;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * Messages that become visible together, at the cost of a single publish. Closing it without {@link #commit()} discards
 * all of them.
 */
public final class Batch implements AutoCloseable {
    private final Producer producer;
    /** Position of the next message. */
    private long at;
    private long messages;

    Batch(Producer producer, long at) {
        this.producer = producer;
        this.at = at;
        producer.lent(this);
    }

    /**
     * Returns room for one more message. It begins at a multiple of 32 and has arbitrary previous contents. It must not
     * be written after {@link #commit()} or {@link #close()}.
     *
     * @param length its size in bytes
     * @return the room; null if the ring has none now: commit the batch to make progress
     * @throws IOException           see {@link Producer#loan(long)}
     * @throws IllegalStateException if it was committed or closed, or the producer is closed
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
     * Returns the number of messages in the batch.
     *
     * @return the number
     */
    public long size() {
        return messages;
    }

    /**
     * Makes all messages visible at once. An empty batch has no effect.
     *
     * @throws IllegalStateException if it was committed or closed, or the producer is closed
     */
    public void commit() {
        producer.commit(this, at, messages);
    }

    /** Discards the messages if they were not committed. */
    @Override
    public void close() {
        producer.givenBack(this);
    }
}
