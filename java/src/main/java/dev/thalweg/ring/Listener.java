package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/**
 * The side that waits to be found, at a socket file: its directory says who may come near, and only processes of our own
 * user are admitted. The file goes when the listener is closed; one left by a process that was killed is replaced by the
 * next, but never one behind which somebody still listens. For one thread at a time.
 */
public final class Listener implements AutoCloseable {
    /** Ends that nobody refers to any more are closed. */
    static final Cleaner CLEANER = Cleaner.create();

    /**
     * How long one caller may take over its first words while others may be waiting behind it. Who takes longer is not
     * taken for dead: it can call again.
     */
    static final Duration PATIENCE = Duration.ofSeconds(5);

    private static final int O_PATH = 010000000;
    private static final int O_CLOEXEC = 02000000;
    private static final int LOCK_EX_NB = 6;
    private static final int ECONNABORTED = 103;
    private static final short POLLIN = 1;
    /** Ten milliseconds apart: the lock is held for a moment only. */
    private static final int LOCK_TRIES = 200;

    private final Path path;
    private final int socket;
    /** The socket file, held open so that its inode number is not given to another and it is known again. */
    private final int file;
    private final Object key;
    private boolean closed;

    private Listener(Path path, int socket, int file, Object key) {
        this.path = path;
        this.socket = socket;
        this.file = file;
        this.key = key;
    }

    /**
     * Listens at a path.
     *
     * @param path of the socket, which is made; its directory must be there
     * @return the listener
     * @throws SystemCallException somebody listens there already, something else than a socket has the name
     *                             (EADDRINUSE), or the kernel refuses, and why
     * @throws IOException         the path is too long for a socket
     */
    public static Listener bind(Path path) throws IOException {
        // Two processes that both find a stale socket must not remove each other's fresh one.
        int lock = lockDirectoryOf(path);
        try {
            int socket = listen(path);
            try {
                int file = open(path, O_PATH | O_CLOEXEC);
                return new Listener(path, socket, file, keyOf(path));
            } catch (IOException failure) {
                Libc.CLOSE.attempt(socket);
                throw failure;
            }
        } finally {
            Libc.CLOSE.attempt(lock);
        }
    }

    /**
     * Where it listens.
     *
     * @return the socket's path
     */
    public Path path() {
        return path;
    }

    /** Stops listening and removes the socket's file, unless another took the name. More than once does no harm. */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        try {
            if (keyOf(path).equals(key)) {
                Files.delete(path);
            }
        } catch (IOException gone) {
            // Then it need not be removed.
        }
        Libc.CLOSE.attempt(socket);
        Libc.CLOSE.attempt(file);
    }

    /** What is to be done with the next that comes. */
    interface Meeting<T> {
        T with(Link link, Deadline deadline) throws IOException;
    }

    /** Meets the next that comes. Who is silent for too long is hung up on, and the one behind it is met. */
    <T> T meet(Deadline deadline, Duration patience, Meeting<T> meeting) throws IOException {
        while (true) {
            Link link = accept(deadline);
            try {
                return meeting.with(link, deadline.orIn(patience));
            } catch (RingException.TimedOut silent) {
                if (deadline.isOver()) {
                    throw silent;
                }
            }
        }
    }

    /** Waits for the next process. */
    Link accept(Deadline deadline) throws IOException {
        while (true) {
            if (closed) {
                throw new IllegalStateException("the listener at " + path + " is closed");
            }
            int got = Sockets.accept(socket);
            if (got >= 0) {
                return new Link(got);
            }
            if (got != -Libc.EAGAIN && got != -ECONNABORTED) {
                throw Libc.failure("accept4", path.toString(), -got);
            }
            if (deadline.isOver()) {
                throw new RingException.TimedOut();
            }
            await(deadline);
        }
    }

    /** Tells those in the queue, and no more than it holds, that the ring has its consumer; later ones find nobody. */
    void refuseTheRest() throws IOException {
        for (int met = 0; met <= Sockets.BACKLOG; met++) {
            try {
                Link link = accept(Deadline.NOW);
                Handshake.refuse(link, Hello.TAKEN, 0);
                link.close();
            } catch (RingException.TimedOut nobody) {
                return;
            } catch (RingException.NotPermitted stranger) {
                // Closed already.
            }
        }
    }

    private void await(Deadline deadline) throws SystemCallException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment polled = scratch.allocate(8, 4);
            polled.set(JAVA_INT, 0, socket);
            polled.set(JAVA_SHORT, 4, POLLIN);
            long left = deadline.left() / 1_000_000 + 1;
            int timeout = deadline.isForEver() ? -1 : (int) Math.min(left, Integer.MAX_VALUE);
            long got = Libc.POLL.once(polled, 1L, timeout);
            if (got < 0 && got != -Libc.EINTR) {
                throw Libc.failure("poll", path.toString(), (int) -got);
            }
        }
    }

    private static int listen(Path path) throws IOException {
        try {
            return Sockets.listen(path);
        } catch (SystemCallException refused) {
            if (refused.errno() != Sockets.EADDRINUSE || !isStale(path)) {
                throw refused;
            }
            Files.delete(path);
            return Sockets.listen(path);
        }
    }

    /** A socket nobody listens at: of the kinds of files that are no file, directory or link, only it can be asked. */
    private static boolean isStale(Path path) throws IOException {
        var known = Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        return known.isOther() && !Sockets.isBound(path);
    }

    private static Object keyOf(Path path) throws IOException {
        return Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS)
                .fileKey();
    }

    private static int lockDirectoryOf(Path path) throws IOException {
        Path parent = path.toAbsolutePath().getParent();
        int directory = open(parent == null ? path : parent, O_CLOEXEC);
        boolean interrupted = false;
        long refused = -Libc.EAGAIN;
        for (int attempt = 0; refused == -Libc.EAGAIN && attempt < LOCK_TRIES; attempt++) {
            interrupted |= attempt > 0 && Link.pause(10);
            refused = Libc.FLOCK.attempt(directory, LOCK_EX_NB);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (refused == 0) {
            return directory;
        }
        Libc.CLOSE.attempt(directory);
        if (refused == -Libc.EAGAIN) {
            throw new RingException.NotPermitted("another process keeps " + parent + " locked");
        }
        throw Libc.failure("flock", String.valueOf(parent), (int) -refused);
    }

    private static int open(Path path, int flags) throws SystemCallException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.OPEN.on(path.toString(), scratch.allocateFrom(path.toString()), flags, 0);
        }
    }
}
