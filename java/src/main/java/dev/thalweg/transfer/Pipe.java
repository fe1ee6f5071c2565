package dev.thalweg.transfer;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;

import dev.thalweg.internal.Libc;

/**
 * A pipe with both ends.
 *
 * @param source the reading end; it reports the end of file after {@code sink} is closed
 * @param sink   the writing end
 */
public record Pipe(Endpoint source, Endpoint sink) implements AutoCloseable {
    private static final int O_CLOEXEC = 02000000;
    private static final int F_SETPIPE_SZ = 1031;
    private static final int F_GETPIPE_SZ = 1032;

    /**
     * Creates a pipe with the kernel's default capacity.
     *
     * @return both ends
     * @throws IOException if too many files are open
     */
    public static Pipe open() throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            var ends = arena.allocate(ValueLayout.JAVA_INT, 2);
            Libc.PIPE2.on("a new pipe", ends, O_CLOEXEC);
            int source = ends.getAtIndex(ValueLayout.JAVA_INT, 0);
            int sink = ends.getAtIndex(ValueLayout.JAVA_INT, 1);
            return new Pipe(new Endpoint(source, "pipe (source)"), new Endpoint(sink, "pipe (sink)"));
        }
    }

    /**
     * Returns the capacity in bytes.
     *
     * @return its capacity
     * @throws IOException if both ends are closed
     */
    public int capacity() throws IOException {
        return sink.using(fd -> (int) Libc.FCNTL.on("the pipe", fd, F_GETPIPE_SZ, 0));
    }

    /**
     * Sets the capacity.
     *
     * @param bytes the capacity in bytes; the kernel rounds up
     * @return the new capacity in bytes
     * @throws IOException if the capacity exceeds {@code /proc/sys/fs/pipe-max-size} without root privileges (EPERM),
     *                     or is less than its contents (EBUSY)
     */
    public int capacity(int bytes) throws IOException {
        return sink.using(fd -> (int) Libc.FCNTL.on("the pipe, for " + bytes + " bytes", fd, F_SETPIPE_SZ, bytes));
    }

    /** Closes both ends. */
    @Override
    public void close() {
        sink.close();
        source.close();
    }
}
