package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/**
 * Connects two processes of one user by a Unix SEQPACKET socket, which carries small messages and descriptors. The
 * link's arena owns the memory of the ring. Calls use the socket only while the arena is open, so no call uses a reused
 * descriptor number.
 */
final class Link {
    private static final int SOL_SOCKET = 1;
    private static final int SO_TYPE = 3;
    private static final int SO_PASSCRED = 16;
    private static final int SO_PEERCRED = 17;
    private static final int SO_PEERPIDFD = 77;
    private static final int SEQPACKET = 5;
    private static final int SHUT_RD = 0;
    private static final int SHUT_RDWR = 2;
    private static final int EPIPE = 32;
    private static final int ENOPROTOOPT = 92;
    private static final int ECONNRESET = 104;
    private static final int ENOTCONN = 107;
    private static final short POLLIN = 1;
    private static final short POLLOUT = 4;
    /** Size of struct pollfd: int descriptor, short events, short revents. */
    private static final int POLLED = 8;
    /** Number of attempts to close, a millisecond apart, while a thread is still inside a call. */
    private static final int CLOSE_TRIES = 2000;

    /** Contents of a wake-up message; the value has no meaning. */
    private static final byte[] WAKE_UP = {'!'};

    /** The arena of the mapped memory and of the buffers for system calls. */
    final Arena arena = Arena.ofShared();

    private final int socket;
    private final MemorySegment polled = arena.allocate(2 * POLLED, 4);
    private final Packet out = new Packet(arena);
    private final Packet in = new Packet(arena);
    private final Packet last = new Packet(arena);
    private int pidfd = -1;
    private int pid;
    private boolean closed;
    /** True if the peer's process id is known from a message whose sender the kernel verified. */
    private boolean signed;

    /** Takes ownership of a connected socket. Closes the socket if the peer belongs to another user. */
    Link(int socket) throws IOException {
        this.socket = socket;
        try {
            long type = option(SO_TYPE, "SO_TYPE", 4).get(JAVA_INT, 0);
            if (type != SEQPACKET) {
                throw new RingException.NotPermitted("a link needs a socket of type SOCK_SEQPACKET, not " + type);
            }
            // From now on each message carries its sender, because another process may have inherited the other end.
            Libc.SETSOCKOPT.attempt(socket, SOL_SOCKET, SO_PASSCRED, arena.allocateFrom(JAVA_INT, 1), 4);
            // struct ucred: pid, uid, gid.
            MemorySegment peer = option(SO_PEERCRED, "SO_PEERCRED", 12);
            pid = peer.get(JAVA_INT, 0);
            int user = peer.get(JAVA_INT, 4);
            int us = (int) Libc.GETEUID.attempt();
            if (user != us) {
                throw new RingException.NotPermitted("process " + pid + " belongs to user " + Integer.toUnsignedString(user)
                        + "; only user " + Integer.toUnsignedString(us) + " is admitted");
            }
            pidfd = peerPidfd();
        } catch (IOException | RuntimeException failure) {
            close();
            throw failure;
        }
        polled.set(JAVA_INT, 0, socket);
        polled.set(JAVA_INT, POLLED, pidfd);
        polled.set(JAVA_SHORT, POLLED + 4, POLLIN);
    }

    /** Connects to the process that listens at a path; waits while its queue is full. */
    static Link connect(Path path, Deadline deadline) throws IOException {
        return new Link(Sockets.connect(path, deadline));
    }

    /** Creates two connected ends in this process. */
    static Link[] pair() throws IOException {
        int[] ends = Sockets.pair();
        Link first;
        try {
            first = new Link(ends[0]);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(ends[1]);
            throw failure;
        }
        try {
            return new Link[] {first, new Link(ends[1])};
        } catch (IOException | RuntimeException failure) {
            first.close();
            throw failure;
        }
    }

    /** Records the sender of a handshake message as the peer; 0 means unknown. */
    void learn(int sender) throws RingException.NotPermitted {
        if (sender == 0) {
            return;
        }
        if (signed && sender != pid) {
            throw new RingException.NotPermitted("two processes use the other end of the link");
        }
        signed = true;
        if (sender != pid) {
            int first = pidfd;
            pid = sender;
            pidfd = openPidfd();
            polled.set(JAVA_INT, POLLED, pidfd);
            if (first >= 0) {
                Libc.CLOSE.attempt(first);
            }
        }
    }

    /** Returns the peer's process id; 0 if its pid namespace is not visible. */
    int pid() {
        return pid;
    }

    /** Sends one message atomically, with at most one descriptor (-1 for none). */
    void send(byte[] message, int descriptor, Deadline deadline) throws IOException {
        while (true) {
            int errno = out.send(socket, message, descriptor);
            switch (errno) {
                case 0 -> {
                    return;
                }
                case Libc.EAGAIN -> await(POLLOUT, deadline);
                case EPIPE, ECONNRESET -> throw new RingException.Closed(0);
                default -> throw Libc.failure("sendmsg", toString(), errno);
            }
        }
    }

    /**
     * Sends a wake-up message. Ignores errors, because a full queue already wakes the peer, and a closed link has no
     * sleeper.
     */
    void ring(boolean goodbye) {
        // The closing message uses its own memory, because any thread may send it.
        (goodbye ? last : out).send(socket, WAKE_UP, -1);
    }

    /** Receives one message; the caller must close its descriptors. */
    Packet.Received receive(Deadline deadline) throws IOException {
        while (true) {
            int errno = in.receive(socket);
            switch (errno) {
                case 0 -> {
                    Packet.Received got = in.received();
                    if (got.truncated()) {
                        got.drop();
                        throw new RingException.Corrupt("the message has more than " + Packet.LONGEST + " bytes or "
                                + Packet.MOST_DESCRIPTORS + " descriptors, or this process has too many open files"
                                + " (RLIMIT_NOFILE)");
                    }
                    if (got.bytes().length == 0) {
                        got.drop();
                        throw new RingException.Closed(0);
                    }
                    return got;
                }
                // The kernel reports ECONNRESET once, before messages that are still queued.
                case ECONNRESET -> {}
                case Libc.EAGAIN -> await(POLLIN, deadline);
                default -> throw Libc.failure("recvmsg", toString(), errno);
            }
        }
    }

    /**
     * Reads wake-up messages from the link, at most slightly more than an honest peer can have sent. A peer that sends
     * more cannot keep this process busy for ever.
     */
    void drain() {
        for (int message = 0; message < 64; message++) {
            if (in.receive(socket) != 0) {
                return;
            }
            Packet.Received got = in.received();
            got.drop();
            if (got.bytes().length == 0) {
                return;
            }
        }
    }

    /** Returns true if the peer lives and its end is open. A stopped process lives. */
    boolean peerIsAlive() {
        return !peerHasEnded() && poll(socket, (short) 0, -1, Deadline.NOW) == 0;
    }

    /** Returns true if the peer is known to have ended; always false without a pidfd. */
    boolean peerHasEnded() {
        return pidfd >= 0 && poll(-1, (short) 0, pidfd, Deadline.NOW) > 0;
    }

    /** Waits for a message or the peer's end; a signal and the deadline end the wait too. */
    void awaitNews(Deadline deadline) throws SystemCallException {
        long got = poll(socket, POLLIN, pidfd, deadline);
        if (got < 0 && got != -Libc.EINTR) {
            throw Libc.failure("poll", toString(), (int) -got);
        }
    }

    /** Waits for the peer's end. */
    void awaitEnd(Deadline deadline) {
        poll(socket, (short) 0, pidfd, deadline);
    }

    /**
     * Ends every wait of this side for a message, now and later. The peer does not see an end of the link, and this side
     * can still send.
     */
    void stopReceiving() {
        Libc.SHUTDOWN.attempt(socket, SHUT_RD);
    }

    /** Shuts the link down, which ends every wait on it, here and in the peer. */
    void shutDown() {
        Libc.SHUTDOWN.attempt(socket, SHUT_RDWR);
    }

    /**
     * Closes the socket and everything in the arena, as soon as no thread is inside.
     *
     * @throws IllegalStateException if a thread keeps the arena open, because it passes memory of the ring to a native
     *                               call of its own
     */
    synchronized void close() {
        if (closed) {
            return;
        }
        boolean interrupted = false;
        try {
            for (int attempt = 1; !closed; attempt++) {
                try {
                    arena.close();
                    closed = true;
                } catch (IllegalStateException inside) {
                    if (attempt == CLOSE_TRIES) {
                        throw inside;
                    }
                    interrupted |= pause(1);
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        Libc.CLOSE.attempt(socket);
        if (pidfd >= 0) {
            Libc.CLOSE.attempt(pidfd);
        }
    }

    @Override
    public String toString() {
        return "the link to process " + pid;
    }

    /** Sleeps for some milliseconds. Returns true if the sleep was interrupted. */
    static boolean pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
            return false;
        } catch (InterruptedException later) {
            return true;
        }
    }

    private void await(short events, Deadline deadline) throws IOException {
        if (deadline.isOver()) {
            throw new RingException.TimedOut();
        }
        long got = poll(socket, events, -1, deadline);
        if (got < 0 && got != -Libc.EINTR) {
            throw Libc.failure("poll", toString(), (int) -got);
        }
    }

    /** Calls {@code poll(2)} for a socket and a process; a negative descriptor is ignored. */
    private long poll(int watched, short events, int process, Deadline deadline) {
        polled.set(JAVA_INT, 0, watched);
        polled.set(JAVA_SHORT, 4, events);
        polled.set(JAVA_INT, POLLED, process);
        return Sockets.poll(polled, 2, deadline);
    }

    private MemorySegment option(int name, String called, int size) throws SystemCallException {
        MemorySegment value = arena.allocate(size, 4);
        MemorySegment length = arena.allocateFrom(JAVA_INT, size);
        Libc.GETSOCKOPT.on(called, socket, SOL_SOCKET, name, value, length);
        return value;
    }

    /**
     * Returns a pidfd of the peer; -1 if the kernel provides none. {@code SO_PEERPIDFD} (Linux 6.5) cannot refer to
     * another process that got the same number later; {@code pidfd_open(2)} on older kernels could.
     */
    private int peerPidfd() {
        MemorySegment value = arena.allocate(4, 4);
        MemorySegment length = arena.allocateFrom(JAVA_INT, 4);
        long refused = Libc.GETSOCKOPT.attempt(socket, SOL_SOCKET, SO_PEERPIDFD, value, length);
        if (refused == 0) {
            return value.get(JAVA_INT, 0);
        }
        return refused == -ENOPROTOOPT && pid > 0 ? openPidfd() : -1;
    }

    private int openPidfd() {
        return (int) Math.max(Libc.SYSCALL.attempt(Numbers.PIDFD_OPEN, (long) pid, 0L), -1);
    }
}
