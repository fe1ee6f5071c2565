package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;

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
    private static final int ECONNABORTED = 103;
    private static final short POLLIN = 1;
    /** How often the name is tried for, while other processes come and go there. */
    private static final int TRIES = 100;

    /** Process numbers come again. */
    private static final long STARTED = System.currentTimeMillis();

    private static final AtomicLong MADE = new AtomicLong();

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
     * @throws RingException.NotPermitted what has the name belongs to another user
     * @throws IOException         the path is too long for a socket
     */
    public static Listener bind(Path path) throws IOException {
        Sockets.checkPath(path);
        Path fresh = unique(path);
        int socket = listen(fresh);
        try {
            Object key = keyOf(fresh);
            int file = open(fresh, O_PATH | O_CLOEXEC);
            try {
                name(fresh, path);
                return new Listener(path, socket, file, key);
            } catch (IOException failure) {
                Libc.CLOSE.attempt(file);
                throw failure;
            }
        } catch (IOException failure) {
            Libc.CLOSE.attempt(socket);
            throw failure;
        } finally {
            Files.deleteIfExists(fresh);
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

    /**
     * Meets the first visitor whose handshake succeeds. Every other one is hung up on and forgotten: one of another user, one
     * that is silent for too long, and one that breaks the format.
     */
    <T> T meet(Deadline deadline, Duration patience, Meeting<T> meeting) throws IOException {
        while (true) {
            try {
                Link link = accept(deadline);
                return meeting.with(link, deadline.orIn(patience));
            } catch (RingException.TooLarge ours) {
                // The next one would meet it too.
                throw ours;
            } catch (RingException visitors) {
                // Also after one that failed at once: they may come without end.
                if (deadline.isOver()) {
                    throw new RingException.TimedOut();
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
            long got = Sockets.poll(polled, 1, deadline);
            if (got < 0 && got != -Libc.EINTR) {
                throw Libc.failure("poll", path.toString(), (int) -got);
            }
        }
    }

    /** Listens under a name of its own; clients use the final one, so the length of this one does not count. */
    private static int listen(Path fresh) throws IOException {
        if (Sockets.fits(fresh)) {
            return Sockets.listen(fresh);
        }
        int directory = open(fresh.toAbsolutePath().getParent(), O_PATH | O_CLOEXEC);
        try {
            return Sockets.listen(Path.of("/proc/self/fd/" + directory).resolve(fresh.getFileName()));
        } finally {
            Libc.CLOSE.attempt(directory);
        }
    }

    /**
     * Gives a socket that listens its final name. A lock would be simpler, but in a directory such as {@code /tmp} another
     * user could hold one for ever.
     */
    private static void name(Path fresh, Path path) throws IOException {
        for (int attempt = 0; attempt < TRIES; attempt++) {
            try {
                Files.createLink(path, fresh);
                return;
            } catch (FileAlreadyExistsException taken) {
                removeStale(path, userOf(fresh));
            }
        }
        throw Libc.failure("bind", path.toString(), Sockets.EADDRINUSE);
    }

    /** Removes a socket file of this user behind which no process listens; anything else there is an error. */
    private static void removeStale(Path path, Object user) throws IOException {
        Path aside = unique(path);
        try {
            Object owner = userOf(path);
            if (!owner.equals(user)) {
                throw new RingException.NotPermitted(path + " belongs to user " + owner + ", and is left alone");
            }
            Object key = keyOf(path);
            if (!isStale(path)) {
                throw Libc.failure("bind", path.toString(), Sockets.EADDRINUSE);
            }
            Files.move(path, aside, StandardCopyOption.ATOMIC_MOVE);
            if (!keyOf(aside).equals(key)) {
                // Another process has named its socket since: that gets its name back.
                Files.createLink(path, aside);
            }
        } catch (NoSuchFileException gone) {
            // Its process has removed it.
        } finally {
            Files.deleteIfExists(aside);
        }
    }

    /** A socket nobody listens at: of the kinds of files that are no file, directory or link, only it can be asked. */
    private static boolean isStale(Path path) throws IOException {
        var known = Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        return known.isOther() && !Sockets.isBound(path);
    }

    /** A short name beside a path that no other process uses, and that copies of the directory leave out. */
    private static Path unique(Path path) {
        long process = ProcessHandle.current().pid();
        return path.resolveSibling(
                ".socket.thalweg-part." + process + "-" + STARTED + "-" + MADE.incrementAndGet());
    }

    private static Object userOf(Path path) throws IOException {
        return Files.getAttribute(path, "unix:uid", LinkOption.NOFOLLOW_LINKS);
    }

    private static Object keyOf(Path path) throws IOException {
        return Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS)
                .fileKey();
    }

    private static int open(Path path, int flags) throws SystemCallException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.OPEN.on(path.toString(), Libc.text(scratch, path.toString()), flags, 0);
        }
    }
}
