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
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/**
 * Listens at a socket file. The permissions of its directory control access, and the listener admits only processes of
 * its own user. Closing the listener removes the file. The next listener replaces the file of a killed process, but
 * never a file at which a process still listens. For one thread at a time.
 */
public final class Listener implements AutoCloseable {
    /** Closes ends that are no longer reachable. */
    static final Cleaner CLEANER = Cleaner.create();

    /**
     * Time limit for the first messages of a connecting process, because other processes may wait behind it. A slower
     * process is disconnected but not treated as dead: it can connect again.
     */
    static final Duration PATIENCE = Duration.ofSeconds(5);

    private static final int O_PATH = 010000000;
    private static final int O_CLOEXEC = 02000000;
    private static final int O_RDWR = 2;
    private static final int O_CREAT = 0100;
    private static final int O_NONBLOCK = 04000;
    private static final int O_NOFOLLOW = System.getProperty("os.arch").equals("aarch64") ? 0100000 : 0400000;
    private static final int READ_WRITE_BY_OWNER = 0600;
    private static final int LOCK_EX = 2;
    private static final int LOCK_NB = 4;
    private static final int ECONNABORTED = 103;
    private static final short POLLIN = 1;
    /** Number of attempts to take the name while other processes create and remove it. */
    private static final int TRIES = 100;
    /** Time after which a process with the lock counts as hung. */
    private static final Duration HANG = Duration.ofSeconds(10);

    /** Start time of this process. It makes temporary names unique, because the kernel reuses process ids. */
    private static final long STARTED = System.currentTimeMillis();

    private static final AtomicLong MADE = new AtomicLong();

    private final Path path;
    private final int socket;
    /**
     * The socket file, kept open so that the file system does not reuse its inode number. The number shows if the path
     * still names this file.
     */
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
     * @param path path of the socket, which is created; its directory must exist
     * @return the listener
     * @throws SystemCallException        if a process listens there, or the name belongs to something other than a
     *                                    socket (EADDRINUSE), or a system call fails
     * @throws RingException.NotPermitted if the file belongs to another user
     * @throws IOException                if the path is too long for a socket
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
     * Returns the path at which it listens.
     *
     * @return the socket's path
     */
    public Path path() {
        return path;
    }

    /**
     * Stops listening and removes the socket file, unless it belongs to another listener now. Further calls have no
     * effect.
     */
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
            // The file does not exist any more.
        }
        Libc.CLOSE.attempt(socket);
        Libc.CLOSE.attempt(file);
    }

    /** Performs the handshake with one process. {@code deadline} returns the time at which the wait for its next message ends. */
    interface Meeting<T> {
        T with(Link link, Supplier<Deadline> deadline) throws IOException;
    }

    /**
     * Returns the first process whose handshake succeeds. All others are disconnected: processes of other users, silent
     * ones, and those that violate the format.
     */
    <T> T meet(Deadline deadline, Duration patience, Meeting<T> meeting) throws IOException {
        while (true) {
            try {
                Link link = accept(deadline);
                return meeting.with(link, () -> deadline.orIn(patience));
            } catch (RingException.TooLarge ours) {
                // This process caused the failure, not the peer, so the next attempt would fail too.
                throw ours;
            } catch (RingException visitors) {
                // Checks the deadline after each failure, because peers could cause failures without end.
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

    /**
     * Informs the processes in the queue that the ring already has its consumer. Stops after the length of the queue,
     * because later processes find no listener.
     */
    void refuseTheRest() throws IOException {
        for (int met = 0; met <= Sockets.BACKLOG; met++) {
            try {
                Link link = accept(Deadline.NOW);
                Handshake.refuse(link, Hello.TAKEN, 0);
                link.close();
            } catch (RingException.TimedOut nobody) {
                return;
            } catch (RingException.NotPermitted stranger) {
                // Its link is closed already.
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

    /**
     * Listens under a temporary name. Clients use the final name, so the temporary one may be too long for a socket.
     */
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
     * Gives a listening socket its final name. It never replaces another file, so two processes cannot both get the
     * name.
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

    /**
     * Removes a socket file of this user at which no process listens. Throws if the path names anything else. Only the
     * process with the lock removes a file, so it removes the file that it has checked.
     */
    private static void removeStale(Path path, Object user) throws IOException {
        Path lock = path.resolveSibling("." + path.getFileName() + ".thalweg-lock");
        int locked = lock(lock, user);
        try {
            Object owner = userOf(path);
            if (!owner.equals(user)) {
                throw new RingException.NotPermitted(path + " belongs to user " + owner + " and is not replaced; use another path");
            }
            if (!isStale(path)) {
                throw Libc.failure("bind", path.toString(), Sockets.EADDRINUSE);
            }
            Files.deleteIfExists(path);
        } catch (NoSuchFileException gone) {
            // Its owner has just removed it.
        } catch (SystemCallException failure) {
            if (failure.errno() != Sockets.ENOENT) {
                throw failure;
            }
        } finally {
            Files.deleteIfExists(lock);
            Libc.CLOSE.attempt(locked);
        }
    }

    /**
     * Waits until no other process of this user removes a file here. Only this user can open the lock file, because in a
     * directory such as {@code /tmp} another user could hold the lock forever.
     */
    private static int lock(Path path, Object user) throws IOException {
        var pause = new VirtualPause();
        for (var until = Deadline.in(HANG); ; pause.once(until)) {
            int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            boolean isLocked = false;
            try {
                Path opened = Path.of("/proc/self/fd/" + file);
                if (!Files.isRegularFile(opened) || !Files.getAttribute(opened, "unix:uid").equals(user)) {
                    throw new RingException.NotPermitted("the lock file " + path + " is not a file of this user; use another path");
                }
                // Continues without a lock if the file system does not support locks: the other checks still apply.
                isLocked = Libc.FLOCK.attempt(file, LOCK_EX | LOCK_NB) != -Libc.EAGAIN && isNamed(opened, path);
                if (isLocked) {
                    return file;
                }
                if (until.isOver()) {
                    throw Libc.failure("flock", path.toString(), Libc.EAGAIN);
                }
            } finally {
                if (!isLocked) {
                    Libc.CLOSE.attempt(file);
                }
            }
        }
    }

    /** Returns false if the previous owner of the lock has removed the file. A third process then locks another file. */
    private static boolean isNamed(Path opened, Path path) throws IOException {
        try {
            Object key = Files.readAttributes(opened, BasicFileAttributes.class).fileKey();
            return key.equals(keyOf(path));
        } catch (NoSuchFileException gone) {
            return false;
        }
    }

    /**
     * Returns true for a socket at which no process listens. Regular files, directories and links are not sockets.
     */
    private static boolean isStale(Path path) throws IOException {
        var known = Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        return known.isOther() && !Sockets.isBound(path);
    }

    /**
     * Returns a short unused name in the directory of a path. Copies by thalweg skip files with such names.
     */
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
            return (int) Libc.OPEN.on(path.toString(), Libc.text(scratch, path.toString()), flags, READ_WRITE_BY_OWNER);
        }
    }
}
