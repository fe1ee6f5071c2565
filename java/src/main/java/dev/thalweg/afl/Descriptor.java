package dev.thalweg.afl;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

/** A descriptor for 4-byte words. Its calls allocate nothing. For one thread. */
final class Descriptor {
    private static final FunctionDescriptor TRANSFER = FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final int O_WRONLY = 1;
    private static final int O_CLOEXEC = 02000000;
    private static final short POLLIN = 1;

    /**
     * Separate method handles, because calls through {@link Libc} box arguments and allocate, which would be a large
     * part of the cost of a run. They are linked at the first transfer, so a supervisor links none while its worker
     * lives.
     */
    private static final class Handles {
        static final MethodHandle READ = of("read");
        static final MethodHandle WRITE = of("write");

        private static MethodHandle of(String name) {
            var linker = Linker.nativeLinker();
            var symbol = linker.defaultLookup().find(name).orElseThrow();
            return linker.downcallHandle(symbol, TRANSFER, Linker.Option.captureCallState("errno"));
        }
    }

    private final int fd;
    private final MemorySegment word = Arena.global().allocate(JAVA_INT);
    private final MemorySegment state = Arena.global().allocate(STATE);

    /** Creates the object for a descriptor number. */
    Descriptor(int fd) {
        this.fd = fd;
    }

    /** Opens an end of a pipe of another process. */
    static Descriptor ofProcess(long pid, int fd, boolean reads) throws IOException {
        return open("/proc/" + pid + "/fd/" + fd, reads);
    }

    /** Opens a file for reading or writing. */
    static Descriptor open(String path, boolean reads) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            int flags = (reads ? 0 : O_WRONLY) | O_CLOEXEC;
            return new Descriptor((int) Libc.OPEN.on(path, Libc.text(scratch, path), flags, 0));
        }
    }

    /** Returns true if this process has the descriptor open. */
    static boolean isOpen(int fd) {
        return Files.exists(Path.of("/proc/self/fd", Integer.toString(fd)), LinkOption.NOFOLLOW_LINKS);
    }

    /** Reads the next word; returns null at the end. */
    Integer read() {
        return transfer(Handles.READ) ? word.get(JAVA_INT, 0) : null;
    }

    /** Writes a word; returns false if the pipe has no reader any more. */
    boolean write(int value) {
        word.set(JAVA_INT, 0, value);
        return transfer(Handles.WRITE);
    }

    // Words are shorter than PIPE_BUF, so the kernel moves them atomically (pipe(7)).
    private boolean transfer(MethodHandle handle) {
        try {
            while (true) {
                long moved = (long) handle.invokeExact(state, fd, word, 4L);
                if (moved >= 0 || (int) ERRNO.get(state, 0L) != Libc.EINTR) {
                    return moved == 4;
                }
            }
        } catch (Throwable defect) {
            throw new AssertionError("a word through descriptor " + fd, defect);
        }
    }

    /** Waits at most this number of milliseconds; returns true if data is available. */
    boolean isReadableWithin(int milliseconds) {
        try {
            return Libc.isReady(fd, POLLIN, milliseconds);
        } catch (SystemCallException noMemory) {
            return false;
        }
    }
}
