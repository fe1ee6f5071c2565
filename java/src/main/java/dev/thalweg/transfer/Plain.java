package dev.thalweg.transfer;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

import dev.thalweg.internal.Libc;

/**
 * Moves bytes without the native library, and therefore without a profile. Uses {@code splice} or {@code sendfile} if
 * no guarantee is required and the kernel supports the endpoints, otherwise {@code read} and {@code write}.
 */
final class Plain implements Transfer.Mover {
    private static final int EINVAL = 22;
    private static final int ENOSYS = 38;
    private static final int EPERM = 1;
    private static final int SPLICE_F_NONBLOCK = 2;
    private static final int SPLICE_F_MORE = 4;
    private static final int SPLICE_FLAGS = SPLICE_F_NONBLOCK | SPLICE_F_MORE;
    private static final int SEEK_CUR = 1;
    /**
     * Size of one call: small enough to notice interrupts soon, and large enough to make the cost of calls negligible.
     */
    private static final long PIECE = 1 << 20;
    static final int BUFFER = 256 << 10;

    /** Moves some bytes; returns their number, 0 at the end, or the negative errno. */
    private interface Step {
        long move(long most);
    }

    @Override
    public boolean moves() {
        return true;
    }

    @Override
    public Report move(int source, int sink, Transfer.Options options) throws IOException {
        var run = new Run(source, sink, options);
        boolean moved = options.needs().isEmpty()
                && (run.by("splice", most -> Libc.SPLICE.attempt(
                                source, MemorySegment.NULL, sink, MemorySegment.NULL, Math.min(most, PIECE), SPLICE_FLAGS))
                        || run.by("sendfile", most -> Libc.SENDFILE.attempt(
                                sink, source, MemorySegment.NULL, Math.min(most, PIECE))));
        if (!moved) {
            run.readAndWrite();
        }
        return run.report();
    }

    /** One transfer. */
    private static final class Run {
        private final int source;
        private final int sink;
        private final Transfer.Options options;
        private final long began = System.nanoTime();
        private String mechanism = "read-write";
        private long moved;

        Run(int source, int sink, Transfer.Options options) {
            this.source = source;
            this.sink = sink;
            this.options = options;
        }

        /**
         * Moves all bytes by one mechanism. Returns false, without moving any, if the mechanism does not support these
         * endpoints.
         */
        boolean by(String name, Step step) throws IOException {
            while (left() > 0) {
                long got = step.move(left());
                if (got == -Libc.EAGAIN) {
                    // The call uses both endpoints, so EAGAIN does not show which of them is not ready.
                    boolean full = Libc.isReady(source, Waiting.POLLIN, 0);
                    Waiting.until(full ? sink : source, full ? Waiting.POLLOUT : Waiting.POLLIN, this::look);
                    continue;
                }
                if (moved == 0 && (got == -EINVAL || got == -ENOSYS || got == -EPERM)) {
                    return false;
                }
                mechanism = name;
                if (got < 0) {
                    throw failed(name, got);
                }
                if (got == 0) {
                    break;
                }
                moved += got;
                look();
            }
            return true;
        }

        void readAndWrite() throws IOException {
            try (Arena arena = Arena.ofConfined()) {
                var buffer = arena.allocate(BUFFER, Long.BYTES);
                while (left() > 0) {
                    long got = Libc.READ.attempt(source, buffer, Math.min(left(), BUFFER));
                    if (got == -Libc.EAGAIN) {
                        Waiting.until(source, Waiting.POLLIN, this::look);
                        continue;
                    }
                    if (got < 0) {
                        throw failed("read", got);
                    }
                    if (got == 0) {
                        break;
                    }
                    deliver(buffer.asSlice(0, got));
                    look();
                }
            }
        }

        private void deliver(MemorySegment bytes) throws IOException {
            long at = 0;
            try {
                while (at < bytes.byteSize()) {
                    long wrote = Libc.WRITE.attempt(sink, bytes.asSlice(at), bytes.byteSize() - at);
                    if (wrote == -Libc.EAGAIN) {
                        Waiting.until(sink, Waiting.POLLOUT, this::look);
                        continue;
                    }
                    if (wrote < 0) {
                        throw failed("write", wrote);
                    }
                    at += wrote;
                    moved += wrote;
                }
            } catch (IOException failure) {
                // Moves a file's offset back to the unwritten bytes. A pipe has no offset, so the call fails and the
                // bytes are lost.
                Libc.LSEEK.attempt(source, at - bytes.byteSize(), SEEK_CUR);
                throw failure;
            }
        }

        Report report() {
            return new Report(moved, 0, Duration.ofNanos(System.nanoTime() - began), mechanism);
        }

        private long left() {
            return options.length() == Transfer.ALL ? Long.MAX_VALUE : options.length() - moved;
        }

        private void look() throws TransferException {
            boolean goesOn;
            try {
                goesOn = options.watcher().test(moved);
            } catch (Throwable thrown) {
                throw stopped(thrown);
            }
            if (!goesOn) {
                throw stopped(null);
            }
            if (Thread.currentThread().isInterrupted()) {
                throw TransferException.interrupted(moved);
            }
        }

        private TransferException stopped(Throwable cause) {
            return new TransferException("stopped after " + moved + " bytes", moved, 0, cause);
        }

        private TransferException failed(String call, long negative) {
            int errno = (int) -negative;
            String why = Libc.failure(call, "a transfer, after " + moved + " bytes", errno).getMessage();
            return new TransferException(why, moved, errno, null);
        }
    }
}
