package dev.thalweg.transfer;

import java.io.IOException;
import java.util.EnumSet;
import java.util.Objects;
import java.util.Set;
import java.util.function.LongPredicate;

import dev.thalweg.internal.Libc;
import dev.thalweg.internal.Native;

/**
 * A move of bytes from one end to the other, and how it may be made. Immutable: each {@code with} gives another.
 *
 * <pre>{@code
 * try (var file = Endpoint.reading(path); var socket = Socket.connect(address)) {
 *     var report = Transfer.between(file, socket).run();
 * }
 * }</pre>
 *
 * <p>With the native library at hand it plans by this machine's profile, as {@code thalweg} does. Without it
 * {@code read} and {@code write} move the bytes, or, where nothing is {@linkplain #needing needed}, {@code splice} and
 * {@code sendfile} where the kernel takes them.
 *
 * <p>The ends' positions move by what was moved. A transfer ends at the end of its source, after its length, or by an
 * interrupt of its thread, also while it waits for a source that is silent or a sink that is full. Unlike the JDK's
 * channels the ends stay open.
 */
public final class Transfer {
    /** Everything until the source ends. */
    static final long ALL = -1;

    private static final int SEEK_CUR = 1;

    /** How it may be made. */
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
     * Everything from one end to the other, as a copy of its own: {@link Guarantee#STABLE} and {@link Guarantee#PRIVATE}.
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
     * No more than so much.
     *
     * @param bytes at least 0
     * @return another transfer
     */
    public Transfer withLength(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("length: " + bytes + " is less than nothing");
        }
        return with(new Options(bytes, options.needs, options.prefer, options.method, options.watcher));
    }

    /**
     * With these guarantees and no others. None allows the source's pages to be handed over as they are.
     *
     * @param guarantees the required guarantees
     * @return another transfer
     */
    public Transfer needing(Guarantee... guarantees) {
        var needs = Set.copyOf(Set.of(guarantees));
        return with(new Options(options.length, needs, options.prefer, options.method, options.watcher));
    }

    /**
     * Taking little of this.
     *
     * @param prefer the resource to save
     * @return another transfer
     */
    public Transfer preferring(Prefer prefer) {
        Objects.requireNonNull(prefer, "prefer");
        return with(new Options(options.length, options.needs, prefer, options.method, options.watcher));
    }

    /**
     * By this mechanism and no other. It needs the native library.
     *
     * @param method name of the mechanism in {@code thalweg list}
     * @return another transfer
     */
    public Transfer by(String method) {
        Objects.requireNonNull(method, "method");
        return with(new Options(options.length, options.needs, options.prefer, method, options.watcher));
    }

    /**
     * Watched: called now and then with the bytes moved, on the thread that runs it.
     *
     * @param watcher returns false to stop; an exception stops the transfer too, and is the cause of its exception
     * @return another transfer
     */
    public Transfer watchedBy(LongPredicate watcher) {
        Objects.requireNonNull(watcher, "watcher");
        return with(new Options(options.length, options.needs, options.prefer, options.method, watcher));
    }

    /**
     * What {@link #run} would do: a verdict for every mechanism, with its reason and what was measured, as
     * {@code thalweg plan --json} prints it.
     *
     * @return JSON
     * @throws IOException                   if an end is closed or cannot be examined
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
     *                                       After an interrupt its cause is a
     * {@link                                       java.nio.channels.ClosedByInterruptException}, the thread's interrupt
     *                                       status stays set and both ends stay open
     * @throws IOException                   if an end is closed
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

    /** One way to move bytes. */
    interface Mover {
        /** Moves them. */
        Report move(int source, int sink, Options options) throws IOException;

        /** Whether files' positions have moved with them. */
        boolean moves();
    }

    /** What cannot be addressed refuses, and has moved by itself. */
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
