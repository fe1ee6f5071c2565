package dev.thalweg.transfer;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.time.Duration;
import java.util.function.LongPredicate;

import dev.thalweg.internal.Libc;
import dev.thalweg.internal.Native;

/** Moves bytes by the native library's plan. */
final class Planned implements Transfer.Mover {
    private static final int TW_OK = 0;
    private static final int TW_USAGE = 2;
    private static final int TW_UNSUPPORTED = 4;
    private static final int TW_STOPPED = 5;
    private static final long MESSAGE = 488;
    private static final long MECHANISM = 36;

    // The layouts of tw_transfer_options, tw_report and tw_error in thalweg.h.
    private static final StructLayout OPTIONS = MemoryLayout.structLayout(
            JAVA_LONG.withName("size"),
            JAVA_INT.withName("needs"),
            JAVA_INT.withName("prefer"),
            ADDRESS.withName("method"),
            ADDRESS.withName("profile"),
            JAVA_LONG.withName("limit"),
            ADDRESS.withName("progress"),
            ADDRESS.withName("user"));
    private static final StructLayout REPORT = MemoryLayout.structLayout(
            JAVA_LONG.withName("bytes"),
            JAVA_LONG.withName("lost"),
            JAVA_LONG.withName("wall_ns"),
            JAVA_LONG.withName("cpu_ns"),
            JAVA_INT.withName("steps_down"),
            MemoryLayout.sequenceLayout(MECHANISM, java.lang.foreign.ValueLayout.JAVA_BYTE).withName("mechanism"));
    private static final StructLayout ERROR = MemoryLayout.structLayout(
            JAVA_INT.withName("status"),
            JAVA_INT.withName("os_error"),
            JAVA_LONG.withName("moved"),
            MemoryLayout.sequenceLayout(MESSAGE, java.lang.foreign.ValueLayout.JAVA_BYTE).withName("message"));

    private static final MethodHandle PROGRESS;

    static {
        try {
            var type = MethodType.methodType(int.class, long.class, MemorySegment.class);
            PROGRESS = MethodHandles.lookup().findVirtual(Watched.class, "progress", type);
        } catch (ReflectiveOperationException defect) {
            throw new ExceptionInInitializerError(defect);
        }
    }

    /** The machine's profile, loaded once for the life of the process. */
    private static MemorySegment profile;

    private final Native library;

    Planned(Native library) {
        this.library = library;
    }

    @Override
    public boolean moves() {
        return false;
    }

    @Override
    public Report move(int source, int sink, Transfer.Options options) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            var report = arena.allocate(REPORT);
            var error = arena.allocate(ERROR);
            var watched = new Watched(options.watcher());
            var told = told(options, watched, arena);
            check(library.transfer(source, sink, options.length(), told, report, error), error, watched);
            return new Report(
                    number(REPORT, report, "bytes"),
                    number(REPORT, report, "lost"),
                    Duration.ofNanos(number(REPORT, report, "wall_ns")),
                    report.getString(offset(REPORT, "mechanism")));
        }
    }

    String plan(int source, int sink, Transfer.Options options) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            var text = arena.allocate(ADDRESS);
            var error = arena.allocate(ERROR);
            var watched = new Watched(options.watcher());
            var told = told(options, watched, arena);
            check(library.plan(source, sink, options.length(), told, text, error), error, watched);
            return library.take(text);
        }
    }

    private MemorySegment told(Transfer.Options options, Watched watched, Arena arena) {
        var told = arena.allocate(OPTIONS);
        told.set(JAVA_LONG, offset(OPTIONS, "size"), OPTIONS.byteSize());
        int needs = 0;
        for (Guarantee guarantee : options.needs()) {
            needs |= 1 << guarantee.ordinal();
        }
        told.set(JAVA_INT, offset(OPTIONS, "needs"), needs);
        told.set(JAVA_INT, offset(OPTIONS, "prefer"), options.prefer().ordinal());
        if (options.method() != null) {
            told.set(ADDRESS, offset(OPTIONS, "method"), Libc.text(arena, options.method()));
        }
        told.set(ADDRESS, offset(OPTIONS, "profile"), profile(library));
        var descriptor = FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS);
        var progress = Linker.nativeLinker().upcallStub(PROGRESS.bindTo(watched), descriptor, arena);
        told.set(ADDRESS, offset(OPTIONS, "progress"), progress);
        return told;
    }

    /** A watcher that C calls. An exception must not pass through C, so it is stored until the C function returns. */
    private static final class Watched {
        private final LongPredicate watcher;
        private Throwable thrown;
        private boolean interrupted;

        Watched(LongPredicate watcher) {
            this.watcher = watcher;
        }

        int progress(long moved, MemorySegment user) {
            try {
                boolean goesOn = watcher.test(moved);
                interrupted = goesOn && Thread.currentThread().isInterrupted();
                return goesOn && !interrupted ? 0 : 1;
            } catch (Throwable caught) {
                thrown = caught;
                return 1;
            }
        }
    }

    /** Returns the machine's profile. Ignores a profile of another machine or kernel, as {@code thalweg} does. */
    private static synchronized MemorySegment profile(Native library) {
        if (profile == null) {
            try (Arena arena = Arena.ofConfined()) {
                var place = arena.allocate(ADDRESS);
                int status = library.loadProfile(MemorySegment.NULL, place, MemorySegment.NULL);
                profile = status == TW_OK ? place.get(ADDRESS, 0) : MemorySegment.NULL;
            }
        }
        return profile;
    }

    private static void check(int status, MemorySegment error, Watched watched) throws TransferException {
        if (status == TW_OK) {
            return;
        }
        if (status == TW_STOPPED && watched.interrupted) {
            throw TransferException.interrupted(number(ERROR, error, "moved"));
        }
        String message = error.getString(offset(ERROR, "message"));
        switch (status) {
            case TW_USAGE -> throw new IllegalArgumentException(message);
            case TW_UNSUPPORTED -> throw new UnsupportedOperationException(message);
            default -> throw new TransferException(
                    message,
                    number(ERROR, error, "moved"),
                    error.get(JAVA_INT, offset(ERROR, "os_error")),
                    watched.thrown);
        }
    }

    private static long number(StructLayout layout, MemorySegment struct, String field) {
        return struct.get(JAVA_LONG, offset(layout, field));
    }

    private static long offset(StructLayout layout, String field) {
        return layout.byteOffset(PathElement.groupElement(field));
    }
}
