package dev.thalweg;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

import dev.thalweg.internal.Libc;
import dev.thalweg.internal.Measured;

/**
 * Memory that other processes, in any language, can map too.
 *
 * <p>Four kinds, one interface: System V segments ({@code shmget}; what AFL++ uses), POSIX objects
 * ({@code shm_open}), anonymous memory files ({@code memfd_create}) and mapped files. All are made zeroed. The
 * {@linkplain #segment() segment} is bounds-checked; touching it after {@link #close()} throws
 * {@link IllegalStateException} and never ends the JVM.
 *
 * <p>What others do to it is another matter: who makes a mapped file or an unsealed memory file shorter takes the
 * pages away, and touching them then is an {@link InternalError}. {@link #seal()} prevents that for memory files.
 */
public final class SharedMemory implements AutoCloseable {
    /** The kinds of shared memory. */
    public enum Kind {
        /** A System V segment; its name is its id, in decimal. */
        SYSV,
        /** A POSIX object; its name begins with a slash. */
        POSIX,
        /** An anonymous memory file; its name is {@code /proc/PID/fd/N}, for whoever may look there. */
        MEMFD,
        /** A file; its name is its path. */
        FILE
    }

    private static final int O_RDWR = 2;
    private static final int O_CREAT = 0100;
    private static final int O_EXCL = 0200;
    private static final int O_CLOEXEC = 02000000;
    private static final int OWNER_ONLY = 0600;
    private static final int PROT_READ_WRITE = 3;
    private static final int MAP_SHARED = 1;
    private static final int MADV_POPULATE_WRITE = 23;
    private static final int MADV_HUGEPAGE = 14;
    private static final int MFD_CLOEXEC = 1;
    private static final int MFD_ALLOW_SEALING = 2;
    private static final int F_ADD_SEALS = 1033;
    private static final int SEAL_SHRINK_GROW_SEAL = 7;
    private static final int IPC_CREAT_EXCL = 03000;
    private static final int IPC_RMID = 0;
    private static final int IPC_STAT = 2;
    // struct shmid_ds of x86-64 and aarch64: the size lies behind the permissions (asm-generic/shmbuf.h).
    private static final long SHMID_DS = 112;
    private static final long SHM_SEGSZ = 48;
    private static final int SEEK_END = 2;
    private static final long CLEARED_NATIVELY = Measured.number("clear.native-from", 0);

    private final Kind kind;
    private final String name;
    private final int fd;
    private final boolean created;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    private boolean closed;

    private SharedMemory(Kind kind, String name, int fd, boolean created, long address, long size) {
        this.kind = kind;
        this.name = name;
        this.fd = fd;
        this.created = created;
        this.segment = MemorySegment.ofAddress(address).reinterpret(size, arena, null);
    }

    /**
     * Makes new memory, zeroed, for its owner only.
     *
     * @param kind which kind
     * @param name a name for {@code POSIX} ({@code /name}) and {@code FILE} (a path), where nothing may be yet; a label
     *             for {@code MEMFD}; not used for {@code SYSV}
     * @param size bytes, at least 1
     * @return the memory; {@link #close()} unmaps it and removes its name, others keep what they have mapped
     * @throws IOException              the kernel refused, and why
     * @throws IllegalArgumentException the size or the name makes no sense
     */
    public static SharedMemory create(Kind kind, String name, long size) throws IOException {
        if (size < 1) {
            throw new IllegalArgumentException("size: " + size + " is not at least 1 byte");
        }
        return switch (kind) {
            case SYSV -> {
                int id = (int) Libc.SHMGET.on(size + " bytes", 0, size, IPC_CREAT_EXCL | OWNER_ONLY);
                yield attached(id, size, true);
            }
            case POSIX -> sized(kind, posix(name), openPosix(name, O_CREAT | O_EXCL), size);
            case FILE -> sized(kind, name, openFile(name, O_CREAT | O_EXCL), size);
            case MEMFD -> {
                int fd;
                try (Arena arena = Arena.ofConfined()) {
                    var label = arena.allocateFrom(name);
                    fd = (int) Libc.MEMFD_CREATE.on(name, label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
                }
                yield sized(kind, "/proc/" + ProcessHandle.current().pid() + "/fd/" + fd, fd, size);
            }
        };
    }

    /**
     * Joins memory that somebody made.
     *
     * @param kind which kind; a {@code MEMFD} is opened by its path under {@code /proc}
     * @param name its {@link #name()}
     * @return the memory, as large as it is now; {@link #close()} leaves its name
     * @throws IOException              there is none of that name, it is empty, or it is not ours to open
     * @throws IllegalArgumentException the name makes no sense
     */
    public static SharedMemory open(Kind kind, String name) throws IOException {
        if (kind == Kind.SYSV) {
            int id;
            try {
                id = Integer.parseInt(name);
            } catch (NumberFormatException notANumber) {
                throw new IllegalArgumentException(name + " is not the number of a System V segment", notANumber);
            }
            return attached(id, sysvSize(id), false);
        }
        int fd = kind == Kind.POSIX ? openPosix(name, 0) : openFile(name, 0);
        try {
            long size = Libc.LSEEK.on(name, fd, 0L, SEEK_END);
            if (size == 0) {
                throw new IOException(name + " is empty: there is nothing to map");
            }
            return mapped(kind, name, fd, false, size);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(fd);
            throw failure;
        }
    }

    /**
     * The memory.
     *
     * @return a native segment of {@link #size()} bytes, for use by any thread until {@link #close()}
     */
    public MemorySegment segment() {
        return segment;
    }

    /**
     * Its size.
     *
     * @return bytes
     */
    public long size() {
        return segment.byteSize();
    }

    /**
     * Its kind.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * What another process opens it by.
     *
     * @return a number, a path or a name, by kind
     */
    public String name() {
        return name;
    }

    /**
     * Sets all of it to zero: by the C library's memset, or by {@link MemorySegment#fill} where it is so small that the
     * call was measured to cost more.
     */
    public void clear() {
        if (size() < CLEARED_NATIVELY) {
            segment.fill((byte) 0);
        } else {
            Libc.memset(segment, (byte) 0);
        }
    }

    /**
     * Touches every page now, so that no later access waits for the kernel.
     *
     * @throws IOException the memory is not to be had; nothing is lost, but later accesses may still wait
     */
    public void populate() throws IOException {
        Libc.MADVISE.on(toString(), segment.address(), size(), MADV_POPULATE_WRITE);
    }

    /**
     * Asks for huge pages. The kernel gives them where its settings allow it for this kind of memory
     * ({@code /sys/kernel/mm/transparent_hugepage}).
     *
     * @throws IOException this kernel has none
     */
    public void preferHugePages() throws IOException {
        Libc.MADVISE.on(toString(), segment.address(), size(), MADV_HUGEPAGE);
    }

    /**
     * Fixes the size for good: nobody can make it shorter, so that nobody can take pages away from under us.
     *
     * @throws IOException                   the kernel refused
     * @throws UnsupportedOperationException it is not a memory file
     */
    public void seal() throws IOException {
        if (kind != Kind.MEMFD) {
            throw new UnsupportedOperationException(kind + " memory cannot be sealed; MEMFD can");
        }
        Libc.FCNTL.on(name, fd, F_ADD_SEALS, SEAL_SHRINK_GROW_SEAL);
    }

    /**
     * Unmaps it, and removes its name if this object made it. Once is enough; more does no harm.
     *
     * @throws IllegalStateException a thread is inside a bulk operation on it just now; it stays open
     */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        long address = segment.address();
        long size = size();
        // After this nobody is inside, and nobody gets in: only then may the pages go.
        arena.close();
        closed = true;
        if (kind == Kind.SYSV) {
            Libc.SHMDT.attempt(address);
        } else {
            Libc.MUNMAP.attempt(address, size);
            Libc.CLOSE.attempt(fd);
        }
        if (created) {
            removeName();
        }
    }

    @Override
    public String toString() {
        return kind + " memory " + name + " of " + size() + " bytes";
    }

    private void removeName() {
        try (Arena scratch = Arena.ofConfined()) {
            switch (kind) {
                case SYSV -> Libc.SHMCTL.attempt(Integer.parseInt(name), IPC_RMID, MemorySegment.NULL);
                case POSIX -> Libc.SHM_UNLINK.attempt(scratch.allocateFrom(name));
                case FILE -> Path.of(name).toFile().delete();
                case MEMFD -> {}
            }
        }
    }

    private static SharedMemory sized(Kind kind, String name, int fd, long size) throws IOException {
        try {
            Libc.FTRUNCATE.on(name, fd, size);
            return mapped(kind, name, fd, true, size);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(fd);
            try (Arena scratch = Arena.ofConfined()) {
                switch (kind) {
                    case POSIX -> Libc.SHM_UNLINK.attempt(scratch.allocateFrom(name));
                    case FILE -> Path.of(name).toFile().delete();
                    default -> {}
                }
            }
            throw failure;
        }
    }

    private static SharedMemory mapped(Kind kind, String name, int fd, boolean created, long size)
            throws IOException {
        long address = Libc.MMAP.on(name, 0L, size, PROT_READ_WRITE, MAP_SHARED, fd, 0L);
        return new SharedMemory(kind, name, fd, created, address, size);
    }

    private static SharedMemory attached(int id, long size, boolean created) throws IOException {
        try {
            long address = Libc.SHMAT.on("segment " + id, id, 0L, 0);
            return new SharedMemory(Kind.SYSV, Integer.toString(id), -1, created, address, size);
        } catch (IOException failure) {
            if (created) {
                Libc.SHMCTL.attempt(id, IPC_RMID, MemorySegment.NULL);
            }
            throw failure;
        }
    }

    private static long sysvSize(int id) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment facts = scratch.allocate(SHMID_DS, Long.BYTES);
            Libc.SHMCTL.on("segment " + id, id, IPC_STAT, facts);
            return facts.get(ValueLayout.JAVA_LONG, SHM_SEGSZ);
        }
    }

    private static String posix(String name) {
        if (name.length() < 2 || name.charAt(0) != '/' || name.indexOf('/', 1) >= 0) {
            throw new IllegalArgumentException(name + " is not the name of a POSIX object: a slash, then no other");
        }
        return name;
    }

    private static int openPosix(String name, int flags) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.SHM_OPEN.on(posix(name), scratch.allocateFrom(name), O_RDWR | flags, OWNER_ONLY);
        }
    }

    private static int openFile(String path, int flags) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.OPEN.on(path, scratch.allocateFrom(path), O_RDWR | O_CLOEXEC | flags, OWNER_ONLY);
        }
    }
}
