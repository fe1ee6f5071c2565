package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.time.Duration;

/**
 * The writing end of a ring. Closing it ends the channel: the consumer receives everything that was committed, then
 * {@link RingException.Closed}. One thread at a time may use it: a call while another thread is inside throws
 * IllegalStateException. Any thread may call {@link #close()}.
 *
 * <p>If the consumer is gone, waiting methods throw {@link RingException.PeerDied} or {@link RingException.Closed} with
 * the number of messages that it had released. They throw {@link RingException.Corrupt} if the consumer violates the
 * protocol.
 */
public final class Producer implements AutoCloseable {
    private final End end;
    private final Cleaner.Cleanable cleanable;
    private final long capacity;
    private final boolean checksums;
    private final End.Look roomFor = this::lookForRoom;
    private final End.Look drained = this::lookForTheEnd;

    /** Number of bytes committed: the head that this end publishes. */
    private long head;
    /** The consumer's tail as last read; never larger than the real one. */
    private long tail;
    private long sent;
    /** Number of free bytes after the head that {@link #lookForRoom} looks for. */
    private long needed;
    /** The open {@link Loan} or {@link Batch}; null if none. */
    private Object lent;
    private RingException.Corrupt broken;

    Producer(End end) {
        this.end = end;
        this.cleanable = Listener.CLEANER.register(this, end);
        this.capacity = end.capacity();
        this.checksums = end.own.geometry.checksums();
    }

    /**
     * Connects to a consumer that listens at a path, and waits for its answer without limit.
     *
     * @param path    path of the socket
     * @param options configuration of the ring
     * @return the producer
     * @throws IOException see {@link #connect(Path, Options, Duration)}
     */
    public static Producer connect(Path path, Options options) throws IOException {
        return connect(path, options, Deadline.NEVER);
    }

    /**
     * Connects to a consumer that listens at a path.
     *
     * @param path     path of the socket
     * @param options  configuration of the ring
     * @param patience maximum time to wait
     * @return the producer
     * @throws dev.thalweg.SystemCallException if no process listens there, or a system call fails
     * @throws RingException                   if the consumer refuses, is invalid, or takes too long
     * @throws IOException                     if the path is too long for a socket
     */
    public static Producer connect(Path path, Options options, Duration patience) throws IOException {
        return connect(path, options, Deadline.in(patience));
    }

    private static Producer connect(Path path, Options options, Deadline deadline) throws IOException {
        return new Producer(Handshake.offer(Link.connect(path, deadline), options, () -> deadline));
    }

    /**
     * Waits for the first consumer that connects to a listener. Disconnects a process whose handshake fails, or that is
     * silent for five seconds, and then waits for the next one.
     *
     * @param listener the listener, which stays open
     * @param options  configuration of the ring
     * @param patience maximum time to wait
     * @return the producer
     * @throws IOException {@link RingException.TimedOut} if no consumer connected in time, {@link
     *                     RingException.TooLarge} if the capacity is too large, or if a system call fails
     */
    public static Producer accept(Listener listener, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        return new Producer(offered(listener, options, deadline));
    }

    private static End offered(Listener listener, Options options, Deadline deadline) throws IOException {
        return listener.meet(deadline, Listener.PATIENCE, (link, until) -> Handshake.offer(link, options, until));
    }

    /**
     * Listens at a path for the first consumer, and then stops listening. Informs other waiting processes that the ring
     * has its consumer. A process that fails in the handshake or is silent does not count.
     *
     * @param path     path of the socket, which is created and removed
     * @param options  configuration of the ring
     * @param patience maximum time to wait
     * @return the producer
     * @throws IOException see {@link Listener#bind}; {@link RingException.TimedOut} if no consumer connected
     *                     successfully in time
     */
    public static Producer host(Path path, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        try (var listener = Listener.bind(path)) {
            return host(listener, options, deadline);
        }
    }

    /** Like {@link #host(Path, Options, Duration)}, with an existing listener. */
    static Producer host(Listener listener, Options options, Deadline deadline) throws IOException {
        while (true) {
            try {
                var producer = new Producer(offered(listener, options, deadline));
                listener.refuseTheRest();
                return producer;
            } catch (RingException.TimedOut | RingException.TooLarge ours) {
                throw ours;
            } catch (RingException notHim) {
                // Waits for the next process. Checks the deadline here, because peers could cause failures without end.
                if (deadline.isOver()) {
                    throw new RingException.TimedOut();
                }
            }
        }
    }

    /**
     * Returns the size of the largest possible message: the capacity minus one header.
     *
     * @return bytes
     */
    public long largest() {
        return capacity - Frame.HEADER;
    }

    /**
     * Returns the random number that identifies this ring.
     *
     * @return any number
     */
    public long epoch() {
        return end.own.geometry.epoch();
    }

    /**
     * Returns the number of messages committed.
     *
     * @return the number
     */
    public long sent() {
        return sent;
    }

    /**
     * Returns the reading process.
     *
     * @return its process id when the ring was opened; 0 if its pid namespace is not visible
     */
    public long peer() {
        return end.link.pid();
    }

    /**
     * Waits for room for a message, without limit, and returns it for writing in place.
     *
     * @param length its size in bytes
     * @return the room, which must be committed or closed before the next
     * @throws IOException           see the class; {@link RingException.TooLarge} beyond {@link #largest()}
     * @throws IllegalStateException if a loan is open, or this end is closed
     */
    public Loan loan(long length) throws IOException {
        return lend(length, Deadline.NEVER);
    }

    /**
     * Waits for room for a message, and returns it for writing in place.
     *
     * @param length   its size in bytes
     * @param patience maximum time to wait
     * @return the room, which must be committed or closed before the next
     * @throws IOException see {@link #loan(long)}; {@link RingException.TimedOut}
     */
    public Loan loan(long length, Duration patience) throws IOException {
        return lend(length, Deadline.in(patience));
    }

    /**
     * Returns room for a message if it is available now.
     *
     * @param length its size in bytes
     * @return the room, which must be committed or closed before the next; null if none is available
     * @throws IOException see {@link #loan(long)}
     */
    public Loan tryLoan(long length) throws IOException {
        return lend(length, null);
    }

    /**
     * Waits for room, without limit, and sends a copy of a message.
     *
     * @param message the bytes
     * @throws IOException see {@link #loan(long)}
     */
    public void send(MemorySegment message) throws IOException {
        sendCopy(message, Deadline.NEVER);
    }

    /**
     * Waits for room, without limit, and sends a copy of a message.
     *
     * @param message the bytes
     * @throws IOException see {@link #loan(long)}
     */
    public void send(byte[] message) throws IOException {
        send(MemorySegment.ofArray(message));
    }

    /**
     * Waits for room and sends a copy of a message.
     *
     * @param message  the bytes
     * @param patience maximum time to wait
     * @throws IOException see {@link #loan(long, Duration)}
     */
    public void send(byte[] message, Duration patience) throws IOException {
        sendCopy(MemorySegment.ofArray(message), Deadline.in(patience));
    }

    /**
     * Sends a copy of a message if room is available now.
     *
     * @param message the bytes
     * @return true if the message was sent
     * @throws IOException see {@link #loan(long)}
     */
    public boolean trySend(byte[] message) throws IOException {
        return sendCopy(MemorySegment.ofArray(message), null);
    }

    /**
     * Starts a batch: several messages that become visible together, at the cost of a single publish.
     *
     * @return an empty batch, which must be committed or closed before the next message
     * @throws IOException           see the class
     * @throws IllegalStateException if a loan or a batch is open, or this end is closed
     */
    public Batch batch() throws IOException {
        end.enter();
        try {
            checkFree();
            return new Batch(this, head);
        } finally {
            end.leave();
        }
    }

    /**
     * Waits until the consumer has released every message.
     *
     * @param patience maximum time to wait
     * @throws IOException see the class; {@link RingException.TimedOut}
     */
    public void drain(Duration patience) throws IOException {
        end.enter();
        try {
            check();
            tail = found(drained, Deadline.in(patience));
        } finally {
            end.leave();
        }
    }

    /**
     * Closes the channel and releases all resources. Further calls have no effect. Ends a wait of another thread. If
     * another thread is committing a message, the message is sent before the channel is closed.
     */
    @Override
    public void close() {
        end.close();
        cleanable.clean();
    }

    /** Returns the location of the next message's payload. */
    MemorySegment payload(long length) {
        return payloadAt(head, length);
    }

    /** Makes the next message visible. */
    void commit(Loan given, long length) {
        end.enter();
        try {
            commitOne(given, length);
        } finally {
            end.leave();
        }
    }

    private void commitOne(Loan given, long length) {
        take(given);
        writeHeader(head, sent, (int) length);
        publish(head + Frame.occupied(length), 1);
    }

    /** Returns room for one more message of a batch that ends at this position; null if none is available now. */
    MemorySegment extend(Batch given, long at, long length) throws IOException {
        end.enter();
        try {
            if (given != lent) {
                throw new IllegalStateException("the batch was committed or closed already");
            }
            check();
            if (!roomAt(at, length, null)) {
                return null;
            }
            // Writes the length now, because the commit finds each frame by the length of the frame before it.
            end.own.bytes.set(JAVA_LONG, end.own.at(at), Frame.firstWord((int) length, checksums));
            return payloadAt(at, length);
        } finally {
            end.leave();
        }
    }

    /** Makes the messages of a batch that ends at this position visible. */
    void commit(Batch given, long to, long messages) {
        end.enter();
        try {
            take(given);
            long at = head;
            for (long number = sent; number < sent + messages; number++) {
                int length = (int) end.own.bytes.get(JAVA_LONG, end.own.at(at));
                writeHeader(at, number, length);
                at += Frame.occupied(length);
            }
            if (messages > 0) {
                publish(to, messages);
            }
        } finally {
            end.leave();
        }
    }

    /** Records the open loan or batch. */
    void lent(Object given) {
        lent = given;
    }

    /** Removes the record of the open loan or batch. */
    void givenBack(Object given) {
        if (lent == given) {
            lent = null;
        }
    }

    private void take(Object given) {
        if (given != lent) {
            throw new IllegalStateException("the loan was committed or closed already");
        }
        lent = null;
        end.check();
    }

    private MemorySegment payloadAt(long position, long length) {
        end.check();
        return end.own.bytes.asSlice(end.own.at(position) + Frame.HEADER, length);
    }

    private void writeHeader(long position, long number, int length) {
        MemorySegment ring = end.own.bytes;
        long at = end.own.at(position);
        int sum = checksums ? Frame.sum(length, number, payloadAt(position, length)) : 0;
        ring.set(JAVA_LONG, at, Frame.firstWord(length, checksums));
        ring.set(JAVA_LONG, at + 8, number);
        ring.set(JAVA_LONG, at + 16, Integer.toUnsignedLong(sum));
        ring.set(JAVA_LONG, at + 24, 0);
    }

    private void publish(long to, long messages) {
        head = to;
        sent += messages;
        end.publish(to);
        Reference.reachabilityFence(this);
    }

    private Loan lend(long length, Deadline deadline) throws IOException {
        end.enter();
        try {
            return room(length, deadline) ? new Loan(this, length) : null;
        } finally {
            end.leave();
        }
    }

    private boolean sendCopy(MemorySegment message, Deadline deadline) throws IOException {
        long length = message.byteSize();
        end.enter();
        try {
            if (!room(length, deadline)) {
                return false;
            }
            long to = end.own.at(head) + Frame.HEADER;
            MemorySegment.copy(message, JAVA_BYTE, 0, end.own.bytes, JAVA_BYTE, to, length);
            commitOne(null, length);
            return true;
        } finally {
            end.leave();
        }
    }

    /** Waits for room for a payload. Without a deadline (null), looks once and returns false if the ring has none. */
    private boolean room(long length, Deadline deadline) throws IOException {
        checkFree();
        return roomAt(head, length, deadline);
    }

    /** Waits for room for a payload whose frame begins at this position: the head, or the end of a batch. */
    private boolean roomAt(long at, long length, Deadline deadline) throws IOException {
        if (length < 0 || length > largest()) {
            throw new RingException.TooLarge(length, largest());
        }
        if (end.gone(false) != null) {
            throw gone();
        }
        needed = at - head + Frame.occupied(length);
        if (capacity - (head - tail) >= needed) {
            return true;
        }
        long found = found(roomFor, deadline);
        if (found == End.NOTHING) {
            return false;
        }
        tail = found;
        return true;
    }

    private long found(End.Look look, Deadline deadline) throws IOException {
        long found;
        try {
            found = deadline == null ? end.look(look) : end.waitFor(look, deadline);
        } catch (RingException.Corrupt corrupt) {
            broken = corrupt;
            throw corrupt;
        }
        if (found == End.GONE) {
            throw gone();
        }
        return found;
    }

    private long lookForRoom() throws RingException.Corrupt {
        long seen = seenTail();
        return capacity - (head - seen) >= needed ? seen : End.NOTHING;
    }

    private long lookForTheEnd() throws RingException.Corrupt {
        long seen = seenTail();
        return seen == head ? seen : End.NOTHING;
    }

    /** Returns the consumer's tail after a plausibility check. */
    private long seenTail() throws RingException.Corrupt {
        long seen = end.seen();
        if (seen < tail || seen > head || seen % Geometry.ALIGN != 0) {
            throw new RingException.Corrupt("tail " + Long.toUnsignedString(seen) + ": not a multiple of "
                    + Geometry.ALIGN + " between " + tail + " and " + head);
        }
        return seen;
    }

    private void checkFree() throws RingException.Corrupt {
        check();
        if (lent != null) {
            throw new IllegalStateException("commit or close the last loan or batch first");
        }
    }

    private void check() throws RingException.Corrupt {
        end.check();
        if (broken != null) {
            throw broken.again();
        }
    }

    private RingException gone() {
        long delivered = sent - outstanding();
        return end.gone(false) == End.Gone.DIED
                ? new RingException.PeerDied(delivered, 0)
                : new RingException.Closed(delivered);
    }

    /**
     * Returns the number of messages that are committed but not released. Counts them in the memory of this side, which
     * no other process writes.
     */
    private long outstanding() {
        long at = tail;
        try {
            at = seenTail();
        } catch (RingException.Corrupt lie) {
            // The peer's tail is invalid, so this uses the last valid one.
        }
        long count = 0;
        while (at < head) {
            // A false tail may be inside a payload. A length is unsigned, so every step moves on by at least one frame.
            long length = Integer.toUnsignedLong((int) end.own.bytes.get(JAVA_LONG, end.own.at(at)));
            at += Frame.occupied(length);
            count++;
        }
        return Math.min(count, sent);
    }
}
