package dev.thalweg.internal;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;

import dev.thalweg.SystemCallException;

/**
 * The C library's functions that this module calls, on 64-bit Linux. Each returns the result of the call, or throws
 * with the errno. A call that a signal interrupted is repeated, except {@link #CLOSE}.
 */
public final class Libc {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = LINKER.defaultLookup();
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    /** Interrupted by a signal. */
    public static final int EINTR = 4;
    /** The call would have to wait. */
    public static final int EAGAIN = 11;
    /** Maximum number of bytes of a call by {@link Linker.Option#critical}. Such a call delays every safepoint. */
    private static final long SHORT = 1 << 20;

    /** Links memset at the first use. */
    private static final class Memset {
        private static final FunctionDescriptor FILL = FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_INT, JAVA_LONG);
        static final MethodHandle USUAL = LINKER.downcallHandle(symbol("memset"), FILL);
        static final MethodHandle CRITICAL =
                LINKER.downcallHandle(symbol("memset"), FILL, Linker.Option.critical(false));
    }

    /**
     * A function that sets errno. It is linked at its first call, because linking is expensive and a program uses only
     * a few functions.
     */
    public static final class Call {
        private final String name;
        private final boolean again;
        private final FunctionDescriptor descriptor;
        private final Linker.Option[] options;
        // Need not be volatile: racing threads link the same function, and all fields of a method handle are final.
        private MethodHandle linked;

        private Call(String name, FunctionDescriptor descriptor, Linker.Option... options) {
            this(name, true, descriptor, options);
        }

        /** {@code again}: true to repeat a call that a signal interrupted. Such a call must have had no effect. */
        private Call(String name, boolean again, FunctionDescriptor descriptor, Linker.Option... options) {
            this.name = name;
            this.again = again;
            this.descriptor = descriptor;
            this.options = options;
        }

        /** Links the function now, for calls that must work when no memory is left. */
        public void link() {
            handle();
        }

        private MethodHandle handle() {
            MethodHandle handle = linked;
            if (handle == null) {
                var all = new Linker.Option[options.length + 1];
                all[0] = Linker.Option.captureCallState("errno");
                System.arraycopy(options, 0, all, 1, options.length);
                handle = LINKER.downcallHandle(symbol(name), descriptor, all)
                        .asSpreader(1, Object[].class, descriptor.argumentLayouts().size());
                linked = handle;
            }
            return handle;
        }

        /**
         * Makes the call.
         *
         * @param what      subject of the call, for the message
         * @param arguments arguments of the function
         * @return the result, which is not -1
         * @throws SystemCallException if it returned -1
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
         * @param arguments arguments of the function
         * @return the result, or the negative errno
         * @throws RuntimeException if memory among the arguments is closed, confined to another thread, or on the heap
         */
        public long attempt(Object... arguments) {
            long got;
            do {
                got = once(arguments);
            } while (again && got == -EINTR);
            return got;
        }

        /**
         * Makes the call once, for calls with a timeout that must not restart after a signal.
         *
         * @param arguments arguments of the function
         * @return the result, or the negative errno, including {@code -EINTR}
         * @throws RuntimeException if memory among the arguments is closed, confined to another thread, or on the heap
         */
        public long once(Object... arguments) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment state = arena.allocate(STATE);
                Object got = handle().invoke(state, arguments);
                long number = got instanceof MemorySegment place ? place.address() : ((Number) got).longValue();
                return number != -1 ? number : -(int) ERRNO.get(state, 0L);
            } catch (RuntimeException | Error given) {
                throw given;
            } catch (Throwable defect) {
                throw new AssertionError(name, defect);
            }
        }
    }

    private static final FunctionDescriptor TRANSFER = FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);

    /** {@code int open(const char *path, int flags, ...)}: variadic from its third argument. */
    public static final Call OPEN = new Call(
            "open", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT), Linker.Option.firstVariadicArg(2));
    /**
     * {@code int close(int fd)}. After EINTR the descriptor is closed (close(2)), and another thread may have reused
     * its number. A second call would close the descriptor of that thread.
     */
    public static final Call CLOSE = new Call("close", false, FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    /** {@code ssize_t read(int fd, void *buffer, size_t count)}. */
    public static final Call READ = new Call("read", TRANSFER);
    /** {@code ssize_t write(int fd, const void *buffer, size_t count)}. */
    public static final Call WRITE = new Call("write", TRANSFER);
    /** {@code int ftruncate(int fd, off_t length)}. */
    public static final Call FTRUNCATE = new Call("ftruncate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG));
    /** {@code int fchmod(int fd, mode_t mode)}. */
    public static final Call FCHMOD = new Call("fchmod", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
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
    /** {@code void abort(void)}: does not return, even if SIGABRT is blocked or ignored. */
    public static final Call ABORT = new Call("abort", FunctionDescriptor.ofVoid());

    /** {@code ssize_t pread(int fd, void *buffer, size_t count, off_t offset)}. */
    public static final Call PREAD =
            new Call("pread", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG));
    /** {@code ssize_t pwrite(int fd, const void *buffer, size_t count, off_t offset)}. */
    public static final Call PWRITE =
            new Call("pwrite", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG));
    /** {@code int fallocate(int fd, int mode, off_t offset, off_t length)}. */
    public static final Call FALLOCATE =
            new Call("fallocate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG));
    /** {@code int fstatfs(int fd, struct statfs *buffer)}. */
    public static final Call FSTATFS = new Call("fstatfs", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));

    /** {@code int flock(int fd, int operation)}. */
    public static final Call FLOCK = new Call("flock", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));

    private static final FunctionDescriptor NAMED = FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final FunctionDescriptor MESSAGE = FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT);

    /** {@code int socket(int domain, int type, int protocol)}. */
    public static final Call SOCKET =
            new Call("socket", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
    /** {@code int socketpair(int domain, int type, int protocol, int ends[2])}. */
    public static final Call SOCKETPAIR =
            new Call("socketpair", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS));
    /** {@code int bind(int fd, const struct sockaddr *address, socklen_t length)}. */
    public static final Call BIND = new Call("bind", NAMED);
    /** {@code int connect(int fd, const struct sockaddr *address, socklen_t length)}. */
    public static final Call CONNECT = new Call("connect", NAMED);
    /** {@code int getsockname(int fd, struct sockaddr *address, socklen_t *length)}. */
    public static final Call GETSOCKNAME =
            new Call("getsockname", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
    /** {@code int listen(int fd, int backlog)}. */
    public static final Call LISTEN = new Call("listen", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    /** {@code int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)}. */
    public static final Call ACCEPT4 =
            new Call("accept4", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
    /** {@code ssize_t sendmsg(int fd, const struct msghdr *message, int flags)}. */
    public static final Call SENDMSG = new Call("sendmsg", MESSAGE);
    /** {@code ssize_t recvmsg(int fd, struct msghdr *message, int flags)}. */
    public static final Call RECVMSG = new Call("recvmsg", MESSAGE);
    /** {@code int getsockopt(int fd, int level, int name, void *value, socklen_t *length)}. */
    public static final Call GETSOCKOPT =
            new Call("getsockopt", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
    /** {@code int setsockopt(int fd, int level, int name, const void *value, socklen_t length)}. */
    public static final Call SETSOCKOPT =
            new Call("setsockopt", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));
    /** {@code int shutdown(int fd, int how)}. */
    public static final Call SHUTDOWN = new Call("shutdown", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    /** {@code uid_t geteuid(void)}. */
    public static final Call GETEUID = new Call("geteuid", FunctionDescriptor.of(JAVA_INT));
    /** {@code int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)}. */
    public static final Call SCHED_GETAFFINITY =
            new Call("sched_getaffinity", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS));
    /** {@code long sysconf(int name)}. */
    public static final Call SYSCONF = new Call("sysconf", FunctionDescriptor.of(JAVA_LONG, JAVA_INT));
    /** {@code long syscall(long number, ...)}, with two arguments: for calls that the C library has no function for. */
    public static final Call SYSCALL = new Call(
            "syscall",
            FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
            Linker.Option.firstVariadicArg(1));

    private Libc() {}

    /**
     * Copies a string for C.
     *
     * @param arena its memory
     * @param text  a name or a path
     * @return its bytes in UTF-8, and a NUL
     * @throws IllegalArgumentException if C would read another string: the text contains a NUL or half a surrogate pair
     */
    public static MemorySegment text(Arena arena, String text) {
        if (text.indexOf('\0') >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            String shown = text.replace("\0", "\\0");
            throw new IllegalArgumentException(shown + ": a name must not contain NUL or an unpaired surrogate");
        }
        return arena.allocateFrom(text);
    }

    /**
     * Waits for one descriptor by {@code poll}.
     *
     * @param fd           the descriptor
     * @param events       POLLIN, POLLOUT
     * @param milliseconds maximum time; 0 returns at once
     * @return true if the next call on the descriptor would not wait, also because of an error or a hang-up
     * @throws SystemCallException if no memory is left
     */
    public static boolean isReady(int fd, short events, int milliseconds) throws SystemCallException {
        try (Arena scratch = Arena.ofConfined()) {
            // struct pollfd: int fd, short events, short revents.
            MemorySegment asked = scratch.allocate(8, 4);
            asked.set(JAVA_INT, 0, fd);
            asked.set(JAVA_SHORT, 4, events);
            return POLL.on("descriptor " + fd, asked, 1L, milliseconds) > 0;
        }
    }

    /**
     * Sets memory to a byte with the C library's memset. Use it only for memory whose pages no process can take away
     * and the kernel can always provide, because the JVM does not survive SIGBUS in a downcall.
     *
     * @param memory the memory, of native kind
     * @param value  the byte
     * @throws IllegalStateException if the memory is closed
     */
    public static void memset(MemorySegment memory, byte value) {
        long size = memory.byteSize();
        try {
            MemorySegment unused = size <= SHORT
                    ? (MemorySegment) Memset.CRITICAL.invokeExact(memory, (int) value, size)
                    : (MemorySegment) Memset.USUAL.invokeExact(memory, (int) value, size);
        } catch (IllegalStateException closed) {
            throw closed;
        } catch (Throwable defect) {
            throw new AssertionError("memset", defect);
        }
    }

    /**
     * Returns the exception for a failed call.
     *
     * @param call  name of the call
     * @param what  subject of the call
     * @param errno the errno
     * @return the exception
     */
    public static SystemCallException failure(String call, String what, int errno) {
        return new SystemCallException(call, what, errno, words(errno));
    }

    /**
     * Returns the exception for a failed call.
     *
     * @param call   name of the call
     * @param what   subject of the call
     * @param errno  the errno
     * @param advice additional advice
     * @return the exception
     */
    public static SystemCallException failure(String call, String what, int errno, String advice) {
        return new SystemCallException(call, what, errno, words(errno) + ": " + advice);
    }

    private static String words(int errno) {
        try {
            MethodHandle strerror =
                    LINKER.downcallHandle(symbol("strerror"), FunctionDescriptor.of(ADDRESS, JAVA_INT));
            MemorySegment text = (MemorySegment) strerror.invokeExact(errno);
            return text.reinterpret(256).getString(0) + " (errno " + errno + ")";
        } catch (Throwable defect) {
            return "errno " + errno;
        }
    }

    private static MemorySegment symbol(String name) {
        return LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError("the C library has no " + name));
    }
}
