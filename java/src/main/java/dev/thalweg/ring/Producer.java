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
 * The end that writes messages. Closing it is the goodbye: the consumer receives what was committed, then
 * {@link RingException.Closed}. For one thread at a time: a call while another thread is in one throws
 * IllegalStateException. {@link #close()} from any.
 *
 * <p>What waits throws {@link RingException.PeerDied} or {@link RingException.Closed} if the consumer is gone, with the
 * messages that it had released, and {@link RingException.Corrupt} if the consumer writes what cannot be.
 */
public final class Producer implements AutoCloseable {
    private final End end;
    private final Cleaner.Cleanable cleanable;
    private final long capacity;
    private final boolean checksums;
    private final End.Look roomFor = this::lookForRoom;
    private final End.Look drained = this::lookForTheEnd;

    /** As in our page: bytes committed since the beginning. */
    private long head;
    /** The consumer's, when last looked at: never more than it is. */
    private long tail;
    private long sent;
    /** What {@link #lookForRoom} looks for: bytes from our head on. */
    private long needed;
    /** The loan or batch that is open. */
    private Object lent;
    private RingException.Corrupt broken;

    Producer(End end) {
        this.end = end;
        this.cleanable = Listener.CLEANER.register(this, end);
        this.capacity = end.capacity();
        this.checksums = end.own.geometry.checksums();
    }

    /**
     * Joins a consumer that listens at a path, and waits for ever for its answer.
     *
     * @param path    of the socket
     * @param options how the ring is made
     * @return the producer
     * @throws IOException as {@link #connect(Path, Options, Duration)}
     */
    public static Producer connect(Path path, Options options) throws IOException {
        return connect(path, options, Deadline.NEVER);
    }

    /**
     * Joins a consumer that listens at a path.
     *
     * @param path     of the socket
     * @param options  how the ring is made
     * @param patience how long to wait at the most
     * @return the producer
     * @throws dev.thalweg.SystemCallException nobody listens there, or the kernel refuses, and why
     * @throws RingException                   the consumer refuses, or is not what it should be, or takes too long
     * @throws IOException                     the path is too long for a socket
     */
    public static Producer connect(Path path, Options options, Duration patience) throws IOException {
        return connect(path, options, Deadline.in(patience));
    }

    private static Producer connect(Path path, Options options, Deadline deadline) throws IOException {
        return new Producer(Handshake.offer(Link.connect(path, deadline), options, deadline));
    }

    /**
     * Waits for the next that comes to a listener, which must be a consumer. If its handshake fails, that is told, and
     * the next can be waited for; one that says nothing for five seconds is hung up on, and the next is waited for.
     *
     * @param listener where it comes; it stays open
     * @param options  how the ring is made
     * @param patience how long to wait at the most
     * @return the producer
     * @throws IOException as {@link #connect(Path, Options, Duration)}
     */
    public static Producer accept(Listener listener, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        return new Producer(offered(listener, options, deadline));
    }

    private static End offered(Listener listener, Options options, Deadline deadline) throws IOException {
        return listener.meet(deadline, Listener.PATIENCE, (link, until) -> Handshake.offer(link, options, until));
    }

    /**
     * Listens at a path for the first consumer that comes, and no longer: whoever else waits is told that the ring has
     * its consumer. One who fails in the handshake, or is silent, is not the first.
     *
     * @param path     of the socket, which is made and removed
     * @param options  how the ring is made
     * @param patience how long to wait at the most
     * @return the producer
     * @throws IOException as {@link Listener#bind}, and {@link RingException.TimedOut} if nobody came, or only such
     *                     as failed
     */
    public static Producer host(Path path, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        try (var listener = Listener.bind(path)) {
            return host(listener, options, deadline);
        }
    }

    /** The same at a listener that is there. */
    static Producer host(Listener listener, Options options, Deadline deadline) throws IOException {
        while (true) {
            try {
                var producer = new Producer(offered(listener, options, deadline));
                listener.refuseTheRest();
                return producer;
            } catch (RingException.TimedOut | RingException.TooLarge ours) {
                throw ours;
            } catch (RingException notHim) {
                // The next one, then. But they may come without end.
                if (deadline.isOver()) {
                    throw new RingException.TimedOut();
                }
            }
        }
    }

    /**
     * The largest message: the ring without one header.
     *
     * @return bytes
     */
    public long largest() {
        return capacity - Frame.HEADER;
    }

    /**
     * The random number that this ring alone has.
     *
     * @return any number
     */
    public long epoch() {
        return end.own.geometry.epoch();
    }

    /**
     * Messages committed.
     *
     * @return how many
     */
    public long sent() {
        return sent;
    }

    /**
     * The process that reads.
     *
     * @return its id when the two were joined, 0 if it lives in a pid namespace that we do not see
     */
    public long peer() {
        return end.link.pid();
    }

    /**
     * Room for a message, to be written in place; waits for ever until there is some.
     *
     * @param length bytes
     * @return the room, to be committed or closed before the next
     * @throws IOException           as the class says, and {@link RingException.TooLarge} beyond {@link #largest()}
     * @throws IllegalStateException there is a loan already, or this end is closed
     */
    public Loan loan(long length) throws IOException {
        return lend(length, Deadline.NEVER);
    }

    /**
     * Room for a message, to be written in place.
     *
     * @param length   bytes
     * @param patience how long to wait at the most
     * @return the room, to be committed or closed before the next
     * @throws IOException as {@link #loan(long)}, and {@link RingException.TimedOut}
     */
    public Loan loan(long length, Duration patience) throws IOException {
        return lend(length, Deadline.in(patience));
    }

    /**
     * Room for a message if there is some now.
     *
     * @param length bytes
     * @return the room, to be committed or closed before the next; null if there is none
     * @throws IOException as {@link #loan(long)}
     */
    public Loan tryLoan(long length) throws IOException {
        return lend(length, null);
    }

    /**
     * Sends a copy of a message; waits for ever until there is room.
     *
     * @param message the bytes
     * @throws IOException as {@link #loan(long)}
     */
    public void send(MemorySegment message) throws IOException {
        sendCopy(message, Deadline.NEVER);
    }

    /**
     * Sends a copy of a message; waits for ever until there is room.
     *
     * @param message the bytes
     * @throws IOException as {@link #loan(long)}
     */
    public void send(byte[] message) throws IOException {
        send(MemorySegment.ofArray(message));
    }

    /**
     * Sends a copy of a message.
     *
     * @param message  the bytes
     * @param patience how long to wait at the most
     * @throws IOException as {@link #loan(long, Duration)}
     */
    public void send(byte[] message, Duration patience) throws IOException {
        sendCopy(MemorySegment.ofArray(message), Deadline.in(patience));
    }

    /**
     * Sends a copy of a message if there is room now.
     *
     * @param message the bytes
     * @return whether there was
     * @throws IOException as {@link #loan(long)}
     */
    public boolean trySend(byte[] message) throws IOException {
        return sendCopy(MemorySegment.ofArray(message), null);
    }

    /**
     * Several messages that become visible at once, for the price of one.
     *
     * @return an empty batch, to be committed or closed before the next message
     * @throws IOException           as the class says
     * @throws IllegalStateException there is a loan or a batch already, or this end is closed
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
     * @param patience how long at the most
     * @throws IOException as the class says, and {@link RingException.TimedOut}
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

    /** Says goodbye and gives everything back. Once is enough; more does no harm. */
    @Override
    public void close() {
        end.close();
        cleanable.clean();
    }

    /** Where the payload of the next message lies. */
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

    /** Room for one more message of a batch that ends at this position; null if there is none now. */
    MemorySegment extend(Batch given, long at, long length) throws IOException {
        end.enter();
        try {
            if (given != lent) {
                throw new IllegalStateException("committed or closed already");
            }
            check();
            if (!roomAt(at, length, null)) {
                return null;
            }
            // The commit finds the frames by their lengths.
            end.own.bytes.set(JAVA_LONG, end.own.at(at), Frame.firstWord((int) length, checksums));
            return payloadAt(at, length);
        } finally {
            end.leave();
        }
    }

    /** Makes the messages of a batch visible that ends at this position. */
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

    /** Notes the loan or batch that is open. */
    void lent(Object given) {
        lent = given;
    }

    /** Forgets it. */
    void givenBack(Object given) {
        if (lent == given) {
            lent = null;
        }
    }

    private void take(Object given) {
        if (given != lent) {
            throw new IllegalStateException("committed or given back already");
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

    /** Room for a payload; false only without patience. */
    private boolean room(long length, Deadline deadline) throws IOException {
        checkFree();
        return roomAt(head, length, deadline);
    }

    /** Room for a payload whose frame begins at this position: our head, or the end of a batch. */
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

    /** The consumer's tail, if it can be true. */
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

    /** Messages committed and not released, counted in our own memory, which nobody else writes. */
    private long outstanding() {
        long at = tail;
        try {
            at = seenTail();
        } catch (RingException.Corrupt lie) {
            // Then what was seen last.
        }
        long count = 0;
        while (at < head) {
            int length = (int) end.own.bytes.get(JAVA_LONG, end.own.at(at));
            at += Frame.occupied(length);
            count++;
        }
        return Math.min(count, sent);
    }
}
