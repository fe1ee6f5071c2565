package dev.thalweg.internal;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

import dev.thalweg.SystemCallException;

/**
 * The C library's functions that this module calls, on 64-bit Linux. Each returns what the call returned, or throws
 * with the errno; a call that a signal interrupted is made again.
 */
public final class Libc {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = LINKER.defaultLookup();
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    /** Interrupted by a signal. */
    public static final int EINTR = 4;
    /** Not now: it would wait. */
    public static final int EAGAIN = 11;
    private static final MethodHandle STRERROR =
            LINKER.downcallHandle(symbol("strerror"), FunctionDescriptor.of(ADDRESS, JAVA_INT));
    private static final MethodHandle MEMSET = LINKER.downcallHandle(
            symbol("memset"),
            FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_INT, JAVA_LONG),
            Linker.Option.critical(false));

    /** A function that sets errno, ready to be called. */
    public static final class Call {
        private final String name;
        private final MethodHandle handle;

        private Call(String name, FunctionDescriptor descriptor, Linker.Option... options) {
            this.name = name;
            var all = new Linker.Option[options.length + 1];
            all[0] = Linker.Option.captureCallState("errno");
            System.arraycopy(options, 0, all, 1, options.length);
            this.handle = LINKER.downcallHandle(symbol(name), descriptor, all)
                    .asSpreader(1, Object[].class, descriptor.argumentLayouts().size());
        }

        /**
         * Makes the call.
         *
         * @param what      what it is about, for the message
         * @param arguments as the function takes them
         * @return what it returned, which is not -1
         * @throws SystemCallException it returned -1
         */
        public long on(String what, Object... arguments) throws SystemCallException {
            long got = attempt(arguments);
            if (got < 0) {
                throw failure(name, what, (int) -got);
            }
            return got;
        }

        /**
         * Makes the call.
         *
         * @param arguments as the function takes them
         * @return what it returned, or the negative errno
         */
        public long attempt(Object... arguments) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment state = arena.allocate(STATE);
                while (true) {
                    Object got = handle.invoke(state, arguments);
                    long number = got instanceof MemorySegment place ? place.address() : ((Number) got).longValue();
                    if (number != -1) {
                        return number;
                    }
                    int errno = (int) ERRNO.get(state, 0L);
                    if (errno != EINTR) {
                        return -errno;
                    }
                }
            } catch (Throwable defect) {
                throw new AssertionError(name, defect);
            }
        }
    }

    private static final FunctionDescriptor TRANSFER = FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);

    /** {@code int open(const char *path, int flags, ...)}: variadic from its third argument. */
    public static final Call OPEN = new Call(
            "open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT), Linker.Option.firstVariadicArg(2));
    /** {@code int close(int fd)}. */
    public static final Call CLOSE = new Call("close", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    /** {@code ssize_t read(int fd, void *buffer, size_t count)}. */
    public static final Call READ = new Call("read", TRANSFER);
    /** {@code ssize_t write(int fd, const void *buffer, size_t count)}. */
    public static final Call WRITE = new Call("write", TRANSFER);
    /** {@code int ftruncate(int fd, off_t length)}. */
    public static final Call FTRUNCATE = new Call("ftruncate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG));
    /** {@code off_t lseek(int fd, off_t offset, int whence)}. */
    public static final Call LSEEK =
            new Call("lseek", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT));
    /** {@code int fcntl(int fd, int command, ...)}. */
    public static final Call FCNTL = new Call(
            "fcntl", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT), Linker.Option.firstVariadicArg(2));
    /** {@code void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)}. */
    public static final Call MMAP = new Call(
            "mmap", FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG));
    /** {@code int munmap(void *at, size_t length)}. */
    public static final Call MUNMAP = new Call("munmap", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));
    /** {@code int madvise(void *at, size_t length, int advice)}. */
    public static final Call MADVISE =
            new Call("madvise", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT));
    /** {@code int memfd_create(const char *name, unsigned flags)}. */
    public static final Call MEMFD_CREATE =
            new Call("memfd_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    /** {@code int shm_open(const char *name, int flags, mode_t mode)}. */
    public static final Call SHM_OPEN =
            new Call("shm_open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT));
    /** {@code int shm_unlink(const char *name)}. */
    public static final Call SHM_UNLINK = new Call("shm_unlink", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    /** {@code int shmget(key_t key, size_t size, int flags)}. */
    public static final Call SHMGET =
            new Call("shmget", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_INT));
    /** {@code void *shmat(int id, const void *at, int flags)}. */
    public static final Call SHMAT = new Call("shmat", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT));
    /** {@code int shmdt(const void *at)}. */
    public static final Call SHMDT = new Call("shmdt", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
    /** {@code int shmctl(int id, int command, struct shmid_ds *buffer)}. */
    public static final Call SHMCTL = new Call("shmctl", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS));
    /** {@code int pipe2(int ends[2], int flags)}. */
    public static final Call PIPE2 = new Call("pipe2", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    /** {@code ssize_t splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t length, unsigned flags)}. */
    public static final Call SPLICE = new Call(
            "splice",
            FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
    /** {@code ssize_t sendfile(int out, int in, off_t *offset, size_t count)}. */
    public static final Call SENDFILE =
            new Call("sendfile", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, JAVA_INT, ADDRESS, JAVA_LONG));

    /** {@code int poll(struct pollfd *descriptors, nfds_t count, int milliseconds)}. */
    public static final Call POLL =
            new Call("poll", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
    /** {@code int prctl(int option, ...)}, with one argument. */
    public static final Call PRCTL = new Call(
            "prctl", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG), Linker.Option.firstVariadicArg(1));
    /** {@code int kill(pid_t pid, int signal)}. */
    public static final Call KILL = new Call("kill", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    /** {@code pid_t getppid(void)}. */
    public static final Call GETPPID = new Call("getppid", FunctionDescriptor.of(JAVA_INT));

    private Libc() {}

    /**
     * Sets memory to a byte at the C library's speed.
     *
     * @param memory the memory, of native kind
     * @param value  the byte
     * @throws IllegalStateException the memory is closed
     */
    public static void memset(MemorySegment memory, byte value) {
        try {
            MemorySegment unused = (MemorySegment) MEMSET.invokeExact(memory, (int) value, memory.byteSize());
        } catch (IllegalStateException closed) {
            throw closed;
        } catch (Throwable defect) {
            throw new AssertionError("memset", defect);
        }
    }

    /**
     * The failure of a call, in words.
     *
     * @param call  the call's own name
     * @param what  what it was about
     * @param errno what the kernel answered
     * @return the exception
     */
    public static SystemCallException failure(String call, String what, int errno) {
        return new SystemCallException(call, what, errno, words(errno));
    }

    private static String words(int errno) {
        try {
            MemorySegment text = (MemorySegment) STRERROR.invokeExact(errno);
            return text.reinterpret(256).getString(0) + " (errno " + errno + ")";
        } catch (Throwable defect) {
            return "errno " + errno;
        }
    }

    private static MemorySegment symbol(String name) {
        return LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError("the C library has no " + name));
    }
}
