package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/**
 * Futexes between processes: sleeping until one of three words changes, and waking. The calls allocate nothing. The
 * memory that a sleep needs is in the ring's arena, which therefore cannot be closed during the sleep.
 */
final class Futex {
    /** Set by the kernel in a word on a thread's robust list when the thread ends. */
    static final int OWNER_DIED = 0x4000_0000;
    /** Must be set in a word on a robust list. Otherwise the kernel wakes no sleeper when it marks the word. */
    static final int WAITERS = 0x8000_0000;

    private static final long FUTEX_WAKE = 1;
    private static final int SIZE_U32 = 2;
    private static final int CLOCK_MONOTONIC = 1;
    private static final int ETIMEDOUT = 110;
    /** Size of struct futex_waitv: u64 value, u64 address, u32 flags, u32 zero. */
    private static final int WAITER = 24;

    private static final long SECOND = 1_000_000_000;
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final FunctionDescriptor SHAPE =
            FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG);
    // long syscall(long number, ...)
    private static final Linker.Option VARIADIC = Linker.Option.firstVariadicArg(1);
    private static final MethodHandle WAITV =
            handle("syscall", SHAPE, VARIADIC, Linker.Option.captureCallState("errno"));
    private static final MethodHandle WAKE = handle("syscall", SHAPE, VARIADIC);
    private static final MethodHandle CLOCK_GETTIME =
            handle("clock_gettime", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));

    /** True if the kernel and a possible seccomp filter allow sleeping; tests disable it. */
    static volatile boolean allowed = canSleep();

    private final MemorySegment words;
    private final MemorySegment until;
    private final MemorySegment state;

    /** Creates a futex for words that live as long as the arena. */
    Futex(Arena arena, MemorySegment... words) {
        this.words = arena.allocate((long) WAITER * words.length, 8);
        for (int at = 0; at < words.length; at++) {
            long waiter = (long) at * WAITER;
            this.words.set(JAVA_LONG, waiter + 8, words[at].address());
            this.words.set(JAVA_INT, waiter + 16, SIZE_U32);
        }
        this.until = arena.allocate(16, 8);
        this.state = arena.allocate(STATE);
    }

    /** Sets the expected value of a word at the beginning of the sleep. */
    void expect(int which, int value) {
        words.set(JAVA_LONG, (long) which * WAITER, Integer.toUnsignedLong(value));
    }

    /**
     * Calls {@code futex_waitv(2)} (Linux 5.16): sleeps while every word has its expected value. Returns when a word
     * differs or a process wakes one of them. It also returns after a signal or at the deadline, so the caller must
     * look again.
     */
    void sleep(Deadline deadline) throws SystemCallException {
        int errno = attempt(deadline.isForEver() ? MemorySegment.NULL : momentIn(deadline.left()));
        if (errno != 0 && errno != Libc.EAGAIN && errno != Libc.EINTR && errno != ETIMEDOUT) {
            throw Libc.failure("futex_waitv", "the futex words of a ring", errno);
        }
    }

    private int attempt(MemorySegment until) {
        try {
            long count = words.byteSize() / WAITER;
            long got = (long) WAITV.invokeExact(
                    state, Numbers.FUTEX_WAITV, words, count, 0L, until, (long) CLOCK_MONOTONIC);
            return got >= 0 ? 0 : (int) ERRNO.get(state, 0L);
        } catch (IllegalStateException closed) {
            throw closed;
        } catch (Throwable defect) {
            throw new AssertionError("futex_waitv", defect);
        }
    }

    private MemorySegment momentIn(long nanos) {
        try {
            int unused = (int) CLOCK_GETTIME.invokeExact(CLOCK_MONOTONIC, until);
        } catch (IllegalStateException closed) {
            throw closed;
        } catch (Throwable defect) {
            throw new AssertionError("clock_gettime", defect);
        }
        long total = until.get(JAVA_LONG, 8) + nanos % SECOND;
        until.set(JAVA_LONG, 0, until.get(JAVA_LONG, 0) + nanos / SECOND + total / SECOND);
        until.set(JAVA_LONG, 8, total % SECOND);
        return until;
    }

    /** Calls {@code FUTEX_WAKE} for at most one sleeper in any process. It fails for bad addresses only. */
    static void wake(MemorySegment word) {
        try {
            long unused = (long) WAKE.invokeExact(Numbers.FUTEX, word, FUTEX_WAKE, 1L, MemorySegment.NULL, 0L);
        } catch (IllegalStateException closed) {
            throw closed;
        } catch (Throwable defect) {
            throw new AssertionError("futex", defect);
        }
    }

    private static boolean canSleep() {
        try (Arena arena = Arena.ofConfined()) {
            var futex = new Futex(arena, arena.allocate(JAVA_INT));
            // The expected value differs from the word, so this call returns at once.
            futex.expect(0, 1);
            return futex.attempt(MemorySegment.NULL) == Libc.EAGAIN;
        }
    }

    private static MethodHandle handle(String name, FunctionDescriptor shape, Linker.Option... options) {
        var linker = Linker.nativeLinker();
        return linker.downcallHandle(linker.defaultLookup().find(name).orElseThrow(), shape, options);
    }
}
