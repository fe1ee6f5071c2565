package dev.thalweg.transfer;

import java.io.IOException;
import java.util.EnumSet;
import java.util.Objects;
import java.util.Set;
import java.util.function.LongPredicate;

import dev.thalweg.internal.Libc;
import dev.thalweg.internal.Native;

/**
 * A transfer of bytes from one endpoint to another, and its options. Immutable: methods that change an option return a
 * copy.
 *
 * <pre>{@code
 * try (var file = Endpoint.reading(path); var socket = Socket.connect(address)) {
 *     var report = Transfer.between(file, socket).run();
 * }
 * }</pre>
 *
 * <p>With the native library, a transfer is planned by this machine's profile, as in {@code thalweg}. Without the
 * library, {@code splice} or {@code sendfile} moves the bytes if the transfer {@linkplain #needing needs} no guarantees
 * and the kernel supports the endpoints. Otherwise {@code read} and {@code write} move them.
 *
 * <p>The offsets of the endpoints advance by the bytes moved. A transfer ends at the end of its source, after its
 * length, or after an interrupt of its thread, even while it waits for a silent source or a full sink. Unlike with the
 * JDK's channels, the endpoints stay open.
 */
public final class Transfer {
    /** A length that means everything until the source ends. */
    static final long ALL = -1;

    private static final int SEEK_CUR = 1;

    /** The options. */
    record Options(long length, Set<Guarantee> needs, Prefer prefer, String method, LongPredicate watcher) {}

    private final Endpoint source;
    private final Endpoint sink;
    private final Options options;

    private Transfer(Endpoint source, Endpoint sink, Options options) {
        this.source = Objects.requireNonNull(source, "source");
        this.sink = Objects.requireNonNull(sink, "sink");
        this.options = options;
    }

    /**
     * Returns a transfer of everything from one endpoint to another, with {@link Guarantee#STABLE} and
     * {@link Guarantee#PRIVATE}.
     *
     * @param source the source of the bytes
     * @param sink   the destination
     * @return the transfer, not started
     */
    public static Transfer between(Endpoint source, Endpoint sink) {
        var copy = Set.copyOf(EnumSet.of(Guarantee.STABLE, Guarantee.PRIVATE));
        return new Transfer(source, sink, new Options(ALL, copy, Prefer.WALL, null, moved -> true));
    }

    /**
     * Returns a copy with a maximum number of bytes.
     *
     * @param bytes at least 0
     * @return another transfer
     */
    public Transfer withLength(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("length: " + bytes + " must be at least 0");
        }
        return with(new Options(bytes, options.needs, options.prefer, options.method, options.watcher));
    }

    /**
     * Returns a copy with exactly these guarantees. Without guarantees, the sink may receive the source's pages instead
     * of copies.
     *
     * @param guarantees the required guarantees
     * @return another transfer
     */
    public Transfer needing(Guarantee... guarantees) {
        var needs = Set.copyOf(Set.of(guarantees));
        return with(new Options(options.length, needs, options.prefer, options.method, options.watcher));
    }

    /**
     * Returns a copy that saves this resource.
     *
     * @param prefer the resource to save
     * @return another transfer
     */
    public Transfer preferring(Prefer prefer) {
        Objects.requireNonNull(prefer, "prefer");
        return with(new Options(options.length, options.needs, prefer, options.method, options.watcher));
    }

    /**
     * Returns a copy that uses this mechanism only. It needs the native library.
     *
     * @param method name of the mechanism in {@code thalweg list}
     * @return another transfer
     */
    public Transfer by(String method) {
        Objects.requireNonNull(method, "method");
        return with(new Options(options.length, options.needs, options.prefer, method, options.watcher));
    }

    /**
     * Returns a copy with a watcher, which is called regularly with the number of bytes moved, on the thread that runs
     * the transfer.
     *
     * @param watcher returns false to stop. An exception of the watcher also stops the transfer, and becomes the cause
     *                of the {@link TransferException}
     * @return another transfer
     */
    public Transfer watchedBy(LongPredicate watcher) {
        Objects.requireNonNull(watcher, "watcher");
        return with(new Options(options.length, options.needs, options.prefer, options.method, watcher));
    }

    /**
     * Returns what {@link #run} would do: a verdict for every mechanism with its reason and measurements, as
     * {@code thalweg plan --json} prints it.
     *
     * @return JSON
     * @throws IOException                   if an endpoint is closed or cannot be examined
     * @throws UnsupportedOperationException if the native library was not found; the message contains advice
     */
    public String plan() throws IOException {
        var planner = new Planned(Native.get());
        return source.using(from -> sink.using(to -> planner.plan(from, to, options)));
    }

    /**
     * Moves the bytes.
     *
     * @return the result; a source that ends early is not a failure
     * @throws TransferException             if it fails, is stopped or interrupted; contains the number of bytes moved.
     *                                       After an interrupt its cause is a {@code ClosedByInterruptException}, the
     *                                       thread's interrupt status stays set and both endpoints stay open
     * @throws IOException                   if an endpoint is closed
     * @throws UnsupportedOperationException if a mechanism was named or {@link Guarantee#DURABLE} was requested, and
     *                                       the native library was not found
     */
    public Report run() throws IOException {
        Native library = Native.orNull();
        if (library == null && (options.method != null || options.needs.contains(Guarantee.DURABLE))) {
            library = Native.get();
        }
        return runBy(library == null ? new Plain() : new Planned(library));
    }

    Report runBy(Mover mover) throws IOException {
        return source.using(from -> sink.using(to -> {
            if (Thread.currentThread().isInterrupted()) {
                throw TransferException.interrupted(0);
            }
            try {
                Report report = mover.move(from, to, options);
                forward(mover, from, to, report.bytes());
                return report;
            } catch (TransferException failure) {
                forward(mover, from, to, failure.moved());
                throw failure;
            }
        }));
    }

    /** A method of moving bytes. */
    interface Mover {
        /** Moves the bytes. */
        Report move(int source, int sink, Options options) throws IOException;

        /** Returns true if the offsets of files have advanced by the bytes moved. */
        boolean moves();
    }

    /** Advances the offsets of both endpoints. An endpoint without an offset rejects the call, and needs no change. */
    private static void forward(Mover mover, int source, int sink, long moved) {
        if (!mover.moves() && moved > 0) {
            Libc.LSEEK.attempt(source, moved, SEEK_CUR);
            Libc.LSEEK.attempt(sink, moved, SEEK_CUR);
        }
    }

    private Transfer with(Options other) {
        return new Transfer(source, sink, other);
    }
}
