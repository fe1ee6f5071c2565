package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.time.Duration;

/**
 * The reading end of a ring. Closing it ends the channel: the producer gets {@link RingException.Closed}. One thread at
 * a time may use it: a call while another thread is inside a call throws IllegalStateException. Any thread may call
 * {@link #close()}.
 *
 * <p>If everything committed has been received and the producer is gone, receiving throws {@link RingException.Closed}
 * if the producer closed the channel, otherwise {@link RingException.PeerDied}. It throws {@link RingException.Corrupt}
 * if the producer violates the protocol.
 */
public final class Consumer implements AutoCloseable {
    private final End end;
    private final Cleaner.Cleanable cleanable;
    private final long capacity;
    private final boolean trusted;
    private final boolean checksums;
    private final End.Look news = this::lookForNews;

    /** Number of bytes received; equals the tail that this end publishes, unless a message is held. */
    private long tail;
    /** The producer's head as last read; never larger than the real one. */
    private long head;
    private long received;
    /** Buffer for copies of messages if the producer is not trusted. */
    private MemorySegment scratch = MemorySegment.NULL;
    /**
     * Null until a message is held. Afterwards, code that moves the tail must hold the monitor of {@code end}, because
     * any thread may release the oldest message.
     */
    private Holds holds;
    /** The open {@link Sample} or {@link Samples}; null if none. */
    private Object lent;
    private RingException.Corrupt broken;

    Consumer(End end, Options options) {
        this.end = end;
        this.cleanable = Listener.CLEANER.register(this, end);
        this.capacity = end.capacity();
        this.trusted = options.trusted();
        this.checksums = end.peer.geometry.checksums();
    }

    /**
     * Connects to a producer that listens at a path, and waits for its answer without limit.
     *
     * @param path    path of the socket
     * @param options configuration of this end
     * @return the consumer
     * @throws IOException see {@link #connect(Path, Options, Duration)}
     */
    public static Consumer connect(Path path, Options options) throws IOException {
        return connect(path, options, Deadline.NEVER);
    }

    /**
     * Connects to a producer that listens at a path.
     *
     * @param path     path of the socket
     * @param options  configuration of this end
     * @param patience maximum time to wait
     * @return the consumer
     * @throws dev.thalweg.SystemCallException if no process listens there, or a system call fails
     * @throws RingException                   if the producer refuses, is invalid, or takes too long
     * @throws IOException                     if the path is too long for a socket
     */
    public static Consumer connect(Path path, Options options, Duration patience) throws IOException {
        return connect(path, options, Deadline.in(patience));
    }

    private static Consumer connect(Path path, Options options, Deadline deadline) throws IOException {
        return new Consumer(Handshake.accept(Link.connect(path, deadline), options, () -> deadline), options);
    }

    /**
     * Waits for the first producer that connects to a listener. Disconnects a process whose handshake fails, or that is
     * silent for five seconds, and then waits for the next one.
     *
     * @param listener the listener, which stays open
     * @param options  configuration of this end
     * @param patience maximum time to wait
     * @return the consumer
     * @throws RingException.TimedOut if no producer connected in time
     * @throws IOException            if a system call fails
     */
    public static Consumer accept(Listener listener, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        End end = listener.meet(deadline, Listener.PATIENCE, (link, until) -> Handshake.accept(link, options, until));
        return new Consumer(end, options);
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
     * Returns the number of messages that were received, and then released or held.
     *
     * @return the number
     */
    public long received() {
        return received;
    }

    /**
     * Returns the writing process.
     *
     * @return its process id when the ring was opened; 0 if its pid namespace is not visible
     */
    public long peer() {
        return end.link.pid();
    }

    /**
     * Waits for the next message, without limit, and returns it.
     *
     * @return the message, which must be closed before the next
     * @throws IOException           see the class
     * @throws IllegalStateException if a sample is open, or this end is closed
     */
    public Sample receive() throws IOException {
        end.enter();
        try {
            find(Deadline.NEVER);
            return next();
        } finally {
            end.leave();
        }
    }

    /**
     * Waits for the next message and returns it.
     *
     * @param patience maximum time to wait
     * @return the message, which must be closed before the next
     * @throws IOException see {@link #receive()}; {@link RingException.TimedOut}
     */
    public Sample receive(Duration patience) throws IOException {
        end.enter();
        try {
            find(Deadline.in(patience));
            return next();
        } finally {
            end.leave();
        }
    }

    /**
     * Returns the next message if one is available now.
     *
     * @return the message, which must be closed before the next; null if none is available
     * @throws IOException see {@link #receive()}
     */
    public Sample tryReceive() throws IOException {
        end.enter();
        try {
            return find(null) ? next() : null;
        } finally {
            end.leave();
        }
    }

    /**
     * Waits for at least one message, without limit, and returns all that are available. They are released together, at
     * the cost of a single release.
     *
     * @return the messages, which must be closed before the next
     * @throws IOException           see the class
     * @throws IllegalStateException if a sample is open, or this end is closed
     */
    public Samples receiveAll() throws IOException {
        end.enter();
        try {
            find(Deadline.NEVER);
            return all();
        } finally {
            end.leave();
        }
    }

    /**
     * Waits for at least one message, and returns all that are available.
     *
     * @param patience maximum time to wait
     * @return the messages, which must be closed before the next
     * @throws IOException see {@link #receiveAll()}; {@link RingException.TimedOut}
     */
    public Samples receiveAll(Duration patience) throws IOException {
        end.enter();
        try {
            find(Deadline.in(patience));
            return all();
        } finally {
            end.leave();
        }
    }

    /**
     * Returns the number of messages that are held now, see {@link Sample#hold()}.
     *
     * @return the number
     */
    public int held() {
        synchronized (end) {
            return holds == null ? 0 : holds.count();
        }
    }

    /**
     * Returns true if the producer waits for room while no message is available. In that case neither end makes
     * progress until a held message is released. Intended for a consumer after a wait that timed out. The result is
     * false until the producer has looked for room twice, so call this method after each of several waits.
     *
     * @return true if it waits
     * @throws IOException see {@link #tryReceive()}
     */
    public boolean holdsUp() throws IOException {
        end.enter();
        try {
            end.check();
            synchronized (end) {
                int waiting = end.waiting();
                if (holds == null || holds.count() == 0 || End.isAwake(waiting)) {
                    return false;
                }
                // Publishes the unchanged tail, only to wake a sleeping producer, so that it looks again.
                end.publish(holds.tail());
                if (!holds.sleepsOn(waiting)) {
                    return false;
                }
            }
            return !find(null);
        } finally {
            end.leave();
        }
    }

    /** Closes the channel and releases all resources. Further calls have no effect. Ends a wait of another thread. */
    @Override
    public void close() {
        end.close();
        cleanable.clean();
    }

    /** Returns the payload of the message that was checked last. */
    MemorySegment payload(int length) {
        return payloadAt(tail, length);
    }

    /** Returns the payload of the next of several messages, which begins at a position; null after the last. */
    MemorySegment payloadOf(Samples given, long at, long number) throws RingException.Corrupt {
        end.enter();
        try {
            if (given != lent) {
                throw new IllegalStateException("the samples are closed");
            }
            end.check();
            return at < head ? payloadAt(at, checked(at, number)) : null;
        } finally {
            end.leave();
        }
    }

    /** Releases all messages before a position, which gives their room back to the producer. */
    void release(Object given, long to, long messages) {
        end.enter();
        try {
            releaseTo(given, to, messages);
        } finally {
            end.leave();
        }
    }

    private void releaseTo(Object given, long to, long messages) {
        if (given != lent) {
            return;
        }
        lent = null;
        if (end.isClosing() || messages == 0) {
            return;
        }
        tail = to;
        received += messages;
        if (holds == null) {
            end.publish(tail);
        } else {
            synchronized (end) {
                move(holds.pass(tail));
            }
        }
        Reference.reachabilityFence(this);
    }

    /** Holds a message, which counts as received from now on. */
    Held hold(Sample given, long at, int length) {
        end.enter();
        try {
            if (given != lent) {
                throw new IllegalStateException("the sample is closed");
            }
            MemorySegment bytes = payloadAt(at, length);
            if (!trusted) {
                bytes = Arena.ofAuto().allocate(length, Geometry.ALIGN).copyFrom(bytes).asReadOnly();
            }
            synchronized (end) {
                if (holds == null) {
                    holds = new Holds(tail);
                }
                holds.hold(at);
            }
            releaseTo(given, at + Frame.occupied(length), 1);
            return new Held(this, at, bytes);
        } finally {
            end.leave();
        }
    }

    /** Releases a held message. Any thread may call this, also after this end is closed. */
    void giveBack(long at) {
        synchronized (end) {
            move(holds.giveBack(at));
        }
    }

    /** Publishes the tail. The caller must hold the monitor of {@code end}, so that no other thread closes it. */
    private void move(long to) {
        if (to != Holds.STAYS && !end.isClosing()) {
            end.publish(to);
        }
    }

    private Sample next() throws RingException.Corrupt {
        var sample = new Sample(this, tail, checked(tail, received));
        lent = sample;
        return sample;
    }

    private Samples all() throws RingException.Corrupt {
        try {
            // Includes messages that have arrived since the last look.
            head = lookForNews();
        } catch (RingException.Corrupt corrupt) {
            broken = corrupt;
            throw corrupt;
        }
        var samples = new Samples(this, tail, received);
        lent = samples;
        return samples;
    }

    private MemorySegment payloadAt(long position, int length) {
        end.check();
        return trusted
                ? end.peer.bytes.asSlice(end.peer.at(position) + Frame.HEADER, length)
                : scratch.asSlice(0, length).asReadOnly();
    }

    /** Returns the payload length of the frame at a position. Copies the payload if the producer is not trusted. */
    private int checked(long at, long number) throws RingException.Corrupt {
        try {
            return checkedFrame(at, number);
        } catch (RingException.Corrupt corrupt) {
            broken = corrupt;
            throw corrupt;
        }
    }

    /** Waits for a message. Without a deadline (null), looks once and returns false if no message is available. */
    private boolean find(Deadline deadline) throws IOException {
        end.check();
        if (broken != null) {
            throw broken.again();
        }
        if (lent != null) {
            throw new IllegalStateException("close the last sample first");
        }
        if (head > tail) {
            return true;
        }
        long found;
        try {
            found = deadline == null ? end.look(news) : end.waitFor(news, deadline);
        } catch (RingException.Corrupt corrupt) {
            broken = corrupt;
            throw corrupt;
        }
        if (found == End.GONE) {
            throw end.gone(false) == End.Gone.DIED
                    ? new RingException.PeerDied(received, 0)
                    : new RingException.Closed(received);
        }
        head = Math.max(found, head);
        return found != End.NOTHING;
    }

    /** Returns the producer's head after a plausibility check, if it is new. */
    private long lookForNews() throws RingException.Corrupt {
        long seen = end.seen();
        // The producer must not overwrite held messages. The tail is read after the head: the producer can only have
        // used an earlier tail, so an honest head passes the check.
        long kept = holds == null ? tail : holds.tail();
        // The first condition ensures seen >= head >= kept >= 0, so the subtraction in the second one cannot overflow.
        if (seen < head || seen - kept > capacity || seen % Geometry.ALIGN != 0) {
            throw new RingException.Corrupt("head " + Long.toUnsignedString(seen) + ": not a multiple of "
                    + Geometry.ALIGN + " between " + head + " and " + (kept + capacity));
        }
        return seen > tail ? seen : End.NOTHING;
    }

    private int checkedFrame(long position, long due) throws RingException.Corrupt {
        MemorySegment ring = end.peer.bytes;
        long at = end.peer.at(position);
        // Reads each word once and checks the copy, because the producer could change the word between two reads.
        long first = (long) Page.LONG.getOpaque(ring, at);
        long number = (long) Page.LONG.getOpaque(ring, at + 8);
        int told = (int) (long) Page.LONG.getOpaque(ring, at + 16);
        int length = Frame.parse(first, number, head - position, due);
        if (Frame.isSummed(first) != checksums) {
            throw new RingException.Corrupt("frame " + due + (checksums
                    ? ": no CRC, in a ring with checksums" : ": a CRC, in a ring without checksums"));
        }
        if (!trusted) {
            copy(ring, at + Frame.HEADER, length);
        }
        if (checksums) {
            int sum = Frame.sum(length, number, payloadAt(position, length));
            if (sum != told) {
                throw new RingException.Corrupt("frame " + due + ": CRC " + Integer.toHexString(told)
                        + " expected, " + Integer.toHexString(sum) + " found");
            }
        }
        return length;
    }

    private void copy(MemorySegment ring, long at, int length) {
        if (scratch.byteSize() < length) {
            // Grows by doubling, so that all buffers together stay below twice the ring.
            long size = Math.min(capacity, Math.max(length, 2 * scratch.byteSize()));
            scratch = end.link.arena.allocate(size, Geometry.ALIGN);
        }
        MemorySegment.copy(ring, JAVA_BYTE, at, scratch, JAVA_BYTE, 0, length);
    }
}
