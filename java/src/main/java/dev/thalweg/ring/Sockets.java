package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.Charset;
import java.nio.file.Path;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/** Unix SEQPACKET sockets, because the JDK supports stream sockets only. */
final class Sockets {
    static final int EADDRINUSE = 98;

    /** Length of a listener's queue; the kernel accepts one more. */
    static final int BACKLOG = 64;

    private static final int READ_WRITE_BY_OWNER = 0600;
    private static final int AF_UNIX = 1;
    private static final int SOCK_DGRAM = 2;
    private static final int SOCK_SEQPACKET = 5;
    private static final int SOCK_NONBLOCK = 04000;
    private static final int SOCK_CLOEXEC = 02000000;
    private static final int READY = SOCK_CLOEXEC | SOCK_NONBLOCK;
    private static final int SOL_SOCKET = 1;
    private static final int SO_SNDTIMEO = 21;
    private static final int F_GETFL = 3;
    private static final int F_SETFL = 4;
    private static final int EPROTOTYPE = 91;
    static final int ENOENT = 2;
    private static final int ECONNREFUSED = 111;
    /** Size of struct sockaddr_un: short family, then the path and its NUL. */
    private static final int ADDRESS_LENGTH = 110;

    private Sockets() {}

    /** Returns a socket that listens at a path; only its own user may connect. */
    static int listen(Path path) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment address = address(path, arena);
            int socket = socket(SOCK_SEQPACKET | READY);
            try {
                // bind(2) gives the socket file the mode of the socket.
                Libc.FCHMOD.on(path.toString(), socket, READ_WRITE_BY_OWNER);
                Libc.BIND.on(path.toString(), socket, address, ADDRESS_LENGTH);
                Libc.LISTEN.on(path.toString(), socket, BACKLOG);
                return socket;
            } catch (IOException failure) {
                Libc.CLOSE.attempt(socket);
                throw failure;
            }
        }
    }

    /** Calls {@code accept4(2)} without waiting. Returns the socket, or the negative errno. */
    static int accept(int listener) {
        return (int) Libc.ACCEPT4.attempt(listener, MemorySegment.NULL, MemorySegment.NULL, READY);
    }

    /** Connects to the process that listens at a path; waits while its queue is full. */
    static int connect(Path path, Deadline deadline) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment address = address(path, arena);
            boolean virtual = VirtualPause.isNeeded();
            int socket = socket(SOCK_SEQPACKET | SOCK_CLOEXEC | (virtual ? SOCK_NONBLOCK : 0));
            try {
                if (!virtual && !deadline.isForEver()) {
                    // struct timeval; zero would mean no limit.
                    MemorySegment patience = arena.allocate(16, 8);
                    long micros = Math.max(deadline.left() / 1000, 1);
                    patience.set(JAVA_LONG, 0, micros / 1_000_000);
                    patience.set(JAVA_LONG, 8, micros % 1_000_000);
                    Libc.SETSOCKOPT.on("SO_SNDTIMEO", socket, SOL_SOCKET, SO_SNDTIMEO, patience, 16);
                }
                long refused = Libc.CONNECT.attempt(socket, address, ADDRESS_LENGTH);
                var pause = new VirtualPause();
                while (virtual && refused == -Libc.EAGAIN && !deadline.isOver()) {
                    pause.once(deadline);
                    refused = Libc.CONNECT.attempt(socket, address, ADDRESS_LENGTH);
                }
                if (refused == -Libc.EAGAIN) {
                    throw new RingException.TimedOut();
                }
                if (refused < 0) {
                    throw unreachable(path, (int) -refused);
                }
                int flags = (int) Libc.FCNTL.on(path.toString(), socket, F_GETFL, 0);
                Libc.FCNTL.on(path.toString(), socket, F_SETFL, flags | SOCK_NONBLOCK);
                return socket;
            } catch (IOException failure) {
                Libc.CLOSE.attempt(socket);
                throw failure;
            }
        }
    }

    /**
     * Calls {@code poll(2)} until the deadline, rounded up to a millisecond. A virtual thread polls repeatedly without
     * blocking.
     */
    static long poll(MemorySegment polled, long count, Deadline deadline) {
        if (VirtualPause.isNeeded()) {
            var pause = new VirtualPause();
            long got = Libc.POLL.once(polled, count, 0);
            while (got == 0 && !deadline.isOver()) {
                pause.once(deadline);
                got = Libc.POLL.once(polled, count, 0);
            }
            return got;
        }
        long left = deadline.left() / 1_000_000 + (deadline.left() % 1_000_000 == 0 ? 0 : 1);
        return Libc.POLL.once(polled, count, deadline.isForEver() ? -1 : (int) Math.min(left, Integer.MAX_VALUE));
    }

    private static SystemCallException unreachable(Path path, int errno) {
        return switch (errno) {
            case ENOENT -> Libc.failure(
                    "connect", path.toString(), errno, "start the process that listens there first, and check the path");
            case ECONNREFUSED -> Libc.failure(
                    "connect", path.toString(), errno, "the process that listened there has ended: start it again");
            default -> Libc.failure("connect", path.toString(), errno);
        };
    }

    /** Returns two connected sockets. */
    static int[] pair() throws SystemCallException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment ends = arena.allocate(JAVA_INT, 2);
            Libc.SOCKETPAIR.on("a link", AF_UNIX, SOCK_SEQPACKET | READY, 0, ends);
            return ends.toArray(JAVA_INT);
        }
    }

    /**
     * Returns true if a process still has the socket of a socket file open. Connects with another socket type, which
     * the kernel always refuses. So the attempt does not reach a listener, and its errno shows if the socket is open.
     */
    static boolean isBound(Path path) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            int asking = socket(SOCK_DGRAM | READY);
            long answer = Libc.CONNECT.attempt(asking, address(path, arena), ADDRESS_LENGTH);
            Libc.CLOSE.attempt(asking);
            if (answer == 0 || answer == -EPROTOTYPE) {
                return true;
            }
            if (answer == -ECONNREFUSED) {
                return false;
            }
            throw Libc.failure("connect", path.toString(), (int) -answer);
        }
    }

    private static int socket(int type) throws SystemCallException {
        return (int) Libc.SOCKET.on("a link", AF_UNIX, type, 0);
    }

    /** Returns true if a socket can have this path. */
    static boolean fits(Path path) {
        int length = bytes(path).length;
        return length > 0 && length < ADDRESS_LENGTH - 2;
    }

    /** Throws if a socket cannot have this path. */
    static void checkPath(Path path) throws IOException {
        if (!fits(path)) {
            throw new IOException("the socket's path has " + bytes(path).length + " bytes; 1 to " + (ADDRESS_LENGTH - 3)
                    + " are allowed: " + path);
        }
    }

    private static MemorySegment address(Path path, Arena arena) throws IOException {
        checkPath(path);
        byte[] bytes = bytes(path);
        MemorySegment address = arena.allocate(ADDRESS_LENGTH, 2);
        address.set(JAVA_SHORT, 0, (short) AF_UNIX);
        MemorySegment.copy(bytes, 0, address, JAVA_BYTE, 2, bytes.length);
        return address;
    }

    /** Returns the bytes of a path as the JDK passes them to the kernel. */
    private static byte[] bytes(Path path) {
        return path.toString().getBytes(Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8")));
    }
}
