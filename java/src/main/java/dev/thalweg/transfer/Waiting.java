package dev.thalweg.transfer;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.function.LongSupplier;

import dev.thalweg.internal.Libc;

/**
 * Waits for pipes, sockets and terminals in short steps, because a thread inside a blocking call cannot notice an
 * interrupt. On such ends, a call of this package fails with EAGAIN instead of blocking, and poll then waits for a
 * while.
 */
final class Waiting {
    static final short POLLIN = 1;
    static final short POLLOUT = 4;

    private static final int ESPIPE = 29;
    private static final int SEEK_CUR = 1;
    private static final int F_GETFL = 3;
    private static final int F_SETFL = 4;
    private static final int O_NONBLOCK = 04000;
    /** Maximum time of a poll before the caller checks for an interrupt, as in the native library. */
    private static final int MILLISECONDS = 100;

    /** Throws if the wait must end. */
    interface Look {
        void look() throws IOException;
    }

    private Waiting() {}

    /**
     * Makes calls on this end fail instead of block. The flag belongs to the open file description, so this process
     * must have opened it and not share it with another process. Files with an offset are unchanged: poll never waits
     * for them.
     */
    static void neverBlocks(int fd) {
        if (Libc.LSEEK.attempt(fd, 0L, SEEK_CUR) == -ESPIPE) {
            long flags = Libc.FCNTL.attempt(fd, F_GETFL, 0);
            if (flags >= 0) {
                Libc.FCNTL.attempt(fd, F_SETFL, (int) flags | O_NONBLOCK);
            }
        }
    }

    /** Waits until the end is ready, or has an error that the next call will return. */
    static void until(int fd, short events, Look look) throws IOException {
        boolean ready;
        do {
            ready = Libc.isReady(fd, events, MILLISECONDS);
            look.look();
        } while (!ready);
    }

    /** Repeats a call while it fails with EAGAIN. */
    static long done(String call, String what, int fd, short events, LongSupplier attempt) throws IOException {
        throwIfInterrupted();
        long got = attempt.getAsLong();
        while (got == -Libc.EAGAIN) {
            until(fd, events, Waiting::throwIfInterrupted);
            got = attempt.getAsLong();
        }
        if (got < 0) {
            throw Libc.failure(call, what, (int) -got);
        }
        return got;
    }

    private static void throwIfInterrupted() throws ClosedByInterruptException {
        if (Thread.currentThread().isInterrupted()) {
            throw new ClosedByInterruptException();
        }
    }
}
