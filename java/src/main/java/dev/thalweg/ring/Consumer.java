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
 * The end that reads messages. Closing it is the goodbye: the producer gets {@link RingException.Closed}. For one thread
 * at a time: a call while another thread is in one throws IllegalStateException. {@link #close()} from any.
 *
 * <p>When everything committed has been received and the producer is gone, receiving throws {@link RingException.Closed}
 * after its goodbye, else {@link RingException.PeerDied}. {@link RingException.Corrupt} if the producer writes what
 * cannot be.
 */
public final class Consumer implements AutoCloseable {
    private final End end;
    private final Cleaner.Cleanable cleanable;
    private final long capacity;
    private final boolean trusted;
    private final boolean checksums;
    private final End.Look news = this::lookForNews;

    /** Bytes received since the beginning: as in our page, unless a message is held. */
    private long tail;
    /** The producer's, when last looked at: never more than it is. */
    private long head;
    private long received;
    /** Where messages of a producer that is not trusted are copied to. */
    private MemorySegment scratch = MemorySegment.NULL;
    /**
     * Null until a message is held. From then on the tail is moved under the monitor of the end, since any thread may
     * give back the oldest.
     */
    private Holds holds;
    /** The sample, or the samples, that are open. */
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
     * Joins a producer that listens at a path, and waits for ever for its answer.
     *
     * @param path    of the socket
     * @param options how the ring is read
     * @return the consumer
     * @throws IOException as {@link #connect(Path, Options, Duration)}
     */
    public static Consumer connect(Path path, Options options) throws IOException {
        return connect(path, options, Deadline.NEVER);
    }

    /**
     * Joins a producer that listens at a path.
     *
     * @param path     of the socket
     * @param options  how the ring is read
     * @param patience how long to wait at the most
     * @return the consumer
     * @throws dev.thalweg.SystemCallException nobody listens there, or the kernel refuses, and why
     * @throws RingException                   the producer refuses, or is not what it should be, or takes too long
     * @throws IOException                     the path is too long for a socket
     */
    public static Consumer connect(Path path, Options options, Duration patience) throws IOException {
        return connect(path, options, Deadline.in(patience));
    }

    private static Consumer connect(Path path, Options options, Deadline deadline) throws IOException {
        return new Consumer(Handshake.accept(Link.connect(path, deadline), options, deadline), options);
    }

    /**
     * Waits for the first producer that comes to a listener. A visitor whose handshake fails, or that says nothing for five
     * seconds, is hung up on, and the next is waited for.
     *
     * @param listener where it comes; it stays open
     * @param options  how the ring is read
     * @param patience how long to wait at the most
     * @return the consumer
     * @throws RingException.TimedOut no producer came in time
     * @throws IOException            the kernel refuses, and why
     */
    public static Consumer accept(Listener listener, Options options, Duration patience) throws IOException {
        Deadline deadline = Deadline.in(patience);
        End end = listener.meet(deadline, Listener.PATIENCE, (link, until) -> Handshake.accept(link, options, until));
        return new Consumer(end, options);
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
     * Messages received and released.
     *
     * @return how many
     */
    public long received() {
        return received;
    }

    /**
     * The process that writes.
     *
     * @return its id when the two were joined, 0 if it lives in a pid namespace that we do not see
     */
    public long peer() {
        return end.link.pid();
    }

    /**
     * The next message; waits for ever.
     *
     * @return the message, to be closed before the next
     * @throws IOException           as the class says
     * @throws IllegalStateException there is a sample already, or this end is closed
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
     * The next message.
     *
     * @param patience how long to wait at the most
     * @return the message, to be closed before the next
     * @throws IOException as {@link #receive()}, and {@link RingException.TimedOut}
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
     * The next message if there is one now.
     *
     * @return the message, to be closed before the next; null if there is none
     * @throws IOException as {@link #receive()}
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
     * Everything that is there, at least one message; waits for ever for that. Released at once, for the price of one.
     *
     * @return the messages, to be closed before the next
     * @throws IOException           as the class says
     * @throws IllegalStateException there is a sample already, or this end is closed
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
     * Everything that is there, at least one message.
     *
     * @param patience how long to wait at the most
     * @return the messages, to be closed before the next
     * @throws IOException as {@link #receiveAll()}, and {@link RingException.TimedOut}
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
     * Messages that are held now, see {@link Sample#hold()}.
     *
     * @return how many
     */
    public int held() {
        synchronized (end) {
            return holds == null ? 0 : holds.count();
        }
    }

    /**
     * Whether the producer waits for room while no message is here: then neither end goes on until one that is held is
     * given back. For who has waited in vain; false is also the answer until the producer has looked twice, so ask
     * after each of several waits.
     *
     * @return whether it does
     * @throws IOException as {@link #tryReceive()}
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
                // Nothing new, but it wakes who sleeps, so that it looks.
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

    /** Says goodbye and gives everything back. Once is enough; more does no harm. */
    @Override
    public void close() {
        end.close();
        cleanable.clean();
    }

    /** The payload of the message that was checked last. */
    MemorySegment payload(int length) {
        return payloadAt(tail, length);
    }

    /** The payload of the next of several messages, which begins at a position; null if there are no more. */
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

    /** Gives a message back to the producer, or several, up to a position. */
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

    /** Keeps a message, which counts as received from now on. */
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

    /** Gives back a message that was held. From any thread, and when this end is closed too. */
    void giveBack(long at) {
        synchronized (end) {
            move(holds.giveBack(at));
        }
    }

    /** Under the monitor of the end, so that nobody closes it meanwhile. */
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
            // What came since the last look belongs to it.
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

    /** The length of the payload of the frame at a position, which is copied if need be. */
    private int checked(long at, long number) throws RingException.Corrupt {
        try {
            return checkedFrame(at, number);
        } catch (RingException.Corrupt corrupt) {
            broken = corrupt;
            throw corrupt;
        }
    }

    /** Whether a message is there; false only without patience. */
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

    /** The producer's head, if it can be true and is new. */
    private long lookForNews() throws RingException.Corrupt {
        long seen = end.seen();
        // What is held is not to be written over. Looked at after the head, which the producer moved by a tail of before.
        long kept = holds == null ? tail : holds.tail();
        // In this order nothing overflows: head >= kept >= 0.
        if (seen < head || seen - kept > capacity || seen % Geometry.ALIGN != 0) {
            throw new RingException.Corrupt("head " + Long.toUnsignedString(seen) + ": not a multiple of "
                    + Geometry.ALIGN + " between " + head + " and " + (kept + capacity));
        }
        return seen > tail ? seen : End.NOTHING;
    }

    private int checkedFrame(long position, long due) throws RingException.Corrupt {
        MemorySegment ring = end.peer.bytes;
        long at = end.peer.at(position);
        // Each word is read once, then judged: the producer could change it meanwhile.
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
                        + " told, " + Integer.toHexString(sum) + " found");
            }
        }
        return length;
    }

    private void copy(MemorySegment ring, long at, int length) {
        if (scratch.byteSize() < length) {
            // Doubles, so that all of them together stay below twice the ring.
            long size = Math.min(capacity, Math.max(length, 2 * scratch.byteSize()));
            scratch = end.link.arena.allocate(size, Geometry.ALIGN);
        }
        MemorySegment.copy(ring, JAVA_BYTE, at, scratch, JAVA_BYTE, 0, length);
    }
}
