package dev.thalweg.transfer;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;

import dev.thalweg.internal.Libc;

/**
 * An endpoint of a transfer: an open file, an end of a pipe, or a socket. It owns its descriptor.
 *
 * <p>Any thread may close it. A call in progress ends before the descriptor is closed, so that no call uses a reused
 * descriptor number. Closing a socket wakes its calls. A read from a pipe ends when the other end is closed.
 */
public sealed class Endpoint implements AutoCloseable permits Socket {
    private static final int O_WRONLY = 1;
    private static final int O_CREAT = 0100;
    private static final int O_EXCL = 0200;
    private static final int O_CLOEXEC = 02000000;
    private static final int USUAL_MODE = 0666;

    private final int fd;
    private final String name;
    private int users;
    private boolean closed;

    Endpoint(int fd, String name) {
        this.fd = fd;
        this.name = name;
        Waiting.neverBlocks(fd);
    }

    /**
     * Opens a file for reading from its first byte.
     *
     * @param path the file
     * @return the endpoint
     * @throws IOException if it cannot be opened
     */
    public static Endpoint reading(Path path) throws IOException {
        return opened(path, 0);
    }

    /**
     * Creates a new file for writing.
     *
     * @param path a path that does not exist
     * @return the endpoint
     * @throws IOException if the path exists, or the file cannot be created
     */
    public static Endpoint creating(Path path) throws IOException {
        return opened(path, O_WRONLY | O_CREAT | O_EXCL);
    }

    /**
     * Opens an existing file, FIFO or device for writing. The bytes of a file are overwritten from the first one on.
     *
     * @param path the path
     * @return the endpoint
     * @throws IOException if it cannot be opened
     */
    public static Endpoint writing(Path path) throws IOException {
        return opened(path, O_WRONLY);
    }

    private static Endpoint opened(Path path, int flags) throws IOException {
        String name = path.toString();
        try (Arena arena = Arena.ofConfined()) {
            int fd = (int) Libc.OPEN.on(name, Libc.text(arena, name), O_CLOEXEC | flags, USUAL_MODE);
            return new Endpoint(fd, name);
        }
    }

    /**
     * Waits for the first byte, and reads the available bytes, at most as many as fit.
     *
     * @param into native memory
     * @return number of bytes read; 0 at the end of the data
     * @throws IOException if the read fails; {@link java.nio.channels.ClosedByInterruptException} after an interrupt,
     *                     which leaves the endpoint open and the thread's interrupt status set
     */
    public long read(MemorySegment into) throws IOException {
        return using(fd -> Waiting.done(
                "read", name, fd, Waiting.POLLIN, () -> Libc.READ.attempt(fd, into, into.byteSize())));
    }

    /**
     * Writes all bytes.
     *
     * @param bytes native memory
     * @throws IOException if the write fails; some bytes may have been written. After an interrupt: see {@link #read}
     */
    public void write(MemorySegment bytes) throws IOException {
        using(fd -> {
            for (long at = 0; at < bytes.byteSize(); ) {
                var rest = bytes.asSlice(at);
                at += Waiting.done(
                        "write", name, fd, Waiting.POLLOUT, () -> Libc.WRITE.attempt(fd, rest, rest.byteSize()));
            }
            return 0L;
        });
    }

    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            if (users > 0) {
                wake(fd);
                return;
            }
        }
        Libc.CLOSE.attempt(fd);
    }

    @Override
    public String toString() {
        return name;
    }

    /** Ends waiting calls, if possible. */
    void wake(int fd) {}

    /** An action with a descriptor. */
    interface Use<T> {
        T with(int fd) throws IOException;
    }

    /** Performs an action with the descriptor, which stays open during it. */
    <T> T using(Use<T> use) throws IOException {
        synchronized (this) {
            if (closed) {
                throw new ClosedChannelException();
            }
            users++;
        }
        try {
            return use.with(fd);
        } finally {
            boolean last;
            synchronized (this) {
                users--;
                last = closed && users == 0;
            }
            if (last) {
                Libc.CLOSE.attempt(fd);
            }
        }
    }
}
