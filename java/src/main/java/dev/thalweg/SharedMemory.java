package dev.thalweg;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

import dev.thalweg.internal.Libc;
import dev.thalweg.internal.Measured;

/**
 * Memory that other processes, in any language, can map too.
 *
 * <p>It has four kinds with one interface: System V segments ({@code shmget}, used by AFL++), POSIX objects ({@code
 * shm_open}), anonymous memory files ({@code memfd_create}) and mapped files. New memory is zeroed. The {@linkplain
 * #segment() segment} is bounds-checked. Access after {@link #close()} throws {@link IllegalStateException} and never
 * ends the JVM. {@link #globalSegment()} is for memory that is never released.
 *
 * <p>Other processes can affect the memory. If a process truncates a mapped file or an unsealed memory file, an access
 * to the lost pages throws an {@link InternalError}. {@link #seal()} prevents that for memory files. The error also
 * occurs if the file system is full, or the kernel has no memory, when a page is first accessed; {@link
 * MemoryOptions#prewritten()} prevents that.
 *
 * <p>{@link #close()} releases the memory. If it is not called, the memory is released some time after the garbage
 * collector has found that the object, its segment and all slices are unreachable. Keep one of them while other
 * processes open the memory by its name, or while a raw address of it is in use. A JVM that ends without closing {@code
 * SYSV}, {@code POSIX} or {@code FILE} memory leaves its name behind.
 */
public final class SharedMemory implements AutoCloseable {
    /** Kinds of shared memory. */
    public enum Kind {
        /** A System V segment; its name is its id, in decimal. */
        SYSV,
        /** A POSIX object; its name begins with a slash. */
        POSIX,
        /** An anonymous memory file; its name is {@code /proc/PID/fd/N}, for processes with access to it. */
        MEMFD,
        /** A file; its name is its path. */
        FILE
    }

    private static final int O_RDWR = 2;
    private static final int O_CREAT = 0100;
    private static final int O_EXCL = 0200;
    private static final int O_CLOEXEC = 02000000;
    /** Permissions until the requested ones are set. */
    private static final int OWNER_ONLY = MemoryOptions.OWNER_ONLY;
    private static final int PROT_READ_WRITE = 3;
    private static final int MAP_SHARED = 1;
    private static final int MADV_POPULATE_WRITE = 23;
    private static final int MADV_HUGEPAGE = 14;
    private static final int MFD_CLOEXEC = 1;
    private static final int MFD_ALLOW_SEALING = 2;
    private static final int MFD_HUGETLB = 4;
    private static final int F_ADD_SEALS = 1033;
    private static final int SEAL_SHRINK_GROW_SEAL = 7;
    private static final int IPC_CREAT_EXCL = 03000;
    private static final int IPC_STAT = 2;
    private static final int SHM_HUGETLB = 04000;
    // struct shmid_ds of x86-64 and aarch64: the size follows the permissions (asm-generic/shmbuf.h).
    private static final long SHMID_DS = 112;
    private static final long SHM_SEGSZ = 48;
    private static final int SEEK_END = 2;
    private static final long CLEARED_NATIVELY = Measured.number("clear.native-from", 0);
    private static final Cleaner CLEANER = Cleaner.create();

    /** The resources, released by closing or by the cleaner. It does not refer to the segment. */
    private final Mapping mapping;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    /** Releases the resources once; further calls have no effect. */
    final Cleaner.Cleanable cleanable;
    private boolean closed;

    private SharedMemory(Mapping mapping) {
        this.mapping = mapping;
        this.segment = MemorySegment.ofAddress(mapping.address()).reinterpret(mapping.size(), arena, null);
        // Every slice and buffer refers to the scope. The scope is therefore reachable as long as any code can access
        // the memory. If slices have scopes of their own in a later JDK, the cleaner must not run, so it watches the
        // class, which stays reachable.
        var scope = segment.scope();
        boolean shared = scope == arena.scope() && scope == segment.asSlice(0, 1).scope();
        this.cleanable = CLEANER.register(shared ? scope : SharedMemory.class, mapping);
    }

    /**
     * Creates zeroed memory, accessible by its owner only.
     *
     * @param kind the kind
     * @param name a new name for {@code POSIX} ({@code /name}) and {@code FILE} (a path); a label for {@code MEMFD};
     *             unused for {@code SYSV}
     * @param size size in bytes, at least 1
     * @return the memory; {@link #close()} unmaps it and removes its name, but not the mappings of other processes
     * @throws IOException              if a system call fails
     * @throws IllegalArgumentException if the size or the name is invalid
     */
    public static SharedMemory create(Kind kind, String name, long size) throws IOException {
        return create(kind, name, size, MemoryOptions.USUAL);
    }

    /**
     * Creates zeroed memory.
     *
     * @param kind    the kind
     * @param name    the name, as for {@link #create(Kind, String, long)}
     * @param size    size in bytes, at least 1; rounded up to whole huge pages
     * @param options configuration
     * @return the memory; {@link #close()} unmaps it and removes its name, but not the mappings of other processes
     * @throws SystemCallException      if a system call fails: {@code ENOMEM} if too few huge pages are free (the
     *                                  message contains their number and how to reserve them), {@code ENOSPC} if there
     *                                  is no room for the zeros of {@link MemoryOptions#prewritten()}. Nothing is left
     *                                  behind
     * @throws IOException              if another operation fails
     * @throws IllegalArgumentException if the size or the name is invalid, or the kind does not support the options
     */
    public static SharedMemory create(Kind kind, String name, long size, MemoryOptions options) throws IOException {
        long whole = options.sizeFor(kind, size);
        try {
            return switch (kind) {
                case SYSV -> {
                    int flags = IPC_CREAT_EXCL | options.permissions() | options.hugeFlags(SHM_HUGETLB);
                    int id = (int) Libc.SHMGET.on(whole + " bytes", 0, whole, flags);
                    yield attached(id, whole, true);
                }
                case POSIX -> filled(kind, posix(name), openPosix(name, O_CREAT | O_EXCL), whole, options);
                case FILE -> filled(kind, name, openFile(name, O_CREAT | O_EXCL), whole, options);
                case MEMFD -> {
                    int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | options.hugeFlags(MFD_HUGETLB);
                    int fd;
                    try (Arena arena = Arena.ofConfined()) {
                        fd = (int) Libc.MEMFD_CREATE.on(name, Libc.text(arena, name), flags);
                    }
                    String path = "/proc/" + ProcessHandle.current().pid() + "/fd/" + fd;
                    yield filled(kind, path, fd, whole, options);
                }
            };
        } catch (SystemCallException refused) {
            throw options.hugePage() == 0 ? refused : HugePages.explained(refused, kind, whole, options.hugePage());
        }
    }

    /**
     * Opens existing memory.
     *
     * @param kind the kind; a {@code MEMFD} is opened by its path under {@code /proc}
     * @param name its {@link #name()}
     * @return the memory with its current size; {@link #close()} does not remove its name
     * @throws IOException              if the name does not exist, the memory is empty, or access is denied
     * @throws IllegalArgumentException if the name is invalid
     */
    public static SharedMemory open(Kind kind, String name) throws IOException {
        if (kind == Kind.SYSV) {
            int id;
            try {
                id = Integer.parseInt(name);
            } catch (NumberFormatException notANumber) {
                throw new IllegalArgumentException(name + " is not the id of a System V segment", notANumber);
            }
            return attached(id, sysvSize(id), false);
        }
        int fd = kind == Kind.POSIX ? openPosix(name, 0) : openFile(name, 0);
        try {
            long size = Libc.LSEEK.on(name, fd, 0L, SEEK_END);
            if (size == 0) {
                throw new IOException(name + " is empty: nothing to map");
            }
            return mapped(kind, name, fd, false, size);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(fd);
            throw failure;
        }
    }

    /**
     * Returns the memory.
     *
     * @return a native segment of {@link #size()} bytes, for use by any thread until {@link #close()}
     */
    public MemorySegment segment() {
        return segment;
    }

    /**
     * Returns the memory as a segment that lives as long as the process. Accesses do not check if the memory is closed,
     * which saves a few percent in a loop over single bytes. From this call on, the pages stay mapped until the process
     * ends. {@link #close()} still ends {@link #segment()}, closes the descriptor and removes the name. Use it for
     * memory that a program keeps until its end; repeated calls for new memory leak it.
     *
     * @return a native segment of {@link #size()} bytes in the global scope
     * @throws IllegalStateException if it is closed
     */
    public synchronized MemorySegment globalSegment() {
        check();
        mapping.kept().set(true);
        try {
            return MemorySegment.ofAddress(mapping.address()).reinterpret(mapping.size());
        } finally {
            // Keeps the segment reachable until the flag is set, because the cleaner must not run before.
            Reference.reachabilityFence(segment);
        }
    }

    /**
     * Returns the size.
     *
     * @return bytes
     */
    public long size() {
        return segment.byteSize();
    }

    /**
     * Returns the kind.
     *
     * @return the kind
     */
    public Kind kind() {
        return mapping.kind();
    }

    /**
     * Returns the name by which another process opens it.
     *
     * @return a number, a path or a name, by kind
     */
    public String name() {
        return mapping.name();
    }

    /**
     * Sets the whole memory to zero. Uses the C library's memset for System V segments, otherwise {@link
     * MemorySegment#fill}.
     *
     * @throws InternalError         if another process truncated the file, its file system is full, or the kernel has no
     *                               memory for a page
     * @throws IllegalStateException if it is closed
     */
    public void clear() {
        // The kernel reserves the memory of a segment when the segment is created. For other kinds, sealed or not, the
        // access to a page without memory raises SIGBUS, which would end the JVM in a downcall.
        if (kind() == Kind.SYSV && size() >= CLEARED_NATIVELY) {
            Libc.memset(segment, (byte) 0);
        } else {
            segment.fill((byte) 0);
        }
    }

    /**
     * Accesses every page, so that no later access waits for the kernel.
     *
     * @throws IOException           if memory is not available; the contents are unchanged, but later accesses may wait
     * @throws IllegalStateException if it is closed
     */
    public void populate() throws IOException {
        advise(MADV_POPULATE_WRITE);
    }

    /**
     * Requests transparent huge pages. The kernel provides them if its settings allow it for this kind of memory
     * ({@code /sys/kernel/mm/transparent_hugepage}). {@link MemoryOptions#withHugePages()} requires them instead.
     *
     * @throws IOException           if the kernel does not support them, or the memory already consists of huge pages
     * @throws IllegalStateException if it is closed
     */
    public void preferHugePages() throws IOException {
        advise(MADV_HUGEPAGE);
    }

    private synchronized void advise(int advice) throws IOException {
        check();
        try {
            Libc.MADVISE.on(toString(), segment.address(), size(), advice);
        } finally {
            // The kernel gets a raw address, which does not keep the memory mapped.
            Reference.reachabilityFence(segment);
        }
    }

    /**
     * Seals the size, so that no process can truncate the memory and take pages away.
     *
     * @throws IOException                   if a system call fails
     * @throws IllegalStateException         if it is closed
     * @throws UnsupportedOperationException if it is not a memory file
     */
    public synchronized void seal() throws IOException {
        if (kind() != Kind.MEMFD) {
            throw new UnsupportedOperationException(kind() + " memory cannot be sealed; use MEMFD");
        }
        check();
        try {
            Libc.FCNTL.on(name(), mapping.fd(), F_ADD_SEALS, SEAL_SHRINK_GROW_SEAL);
        } finally {
            Reference.reachabilityFence(segment);
        }
    }

    /** Throws if the memory is closed, because its address and descriptor may have been reused. */
    private void check() {
        if (closed) {
            throw new IllegalStateException(this + " is closed");
        }
    }

    /**
     * Unmaps the memory, and removes its name if this object created the name. Further calls have no effect.
     *
     * @throws IllegalStateException if a thread is inside a bulk operation on the memory, which then stays open
     */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        // Fails if a thread is accessing the memory, and prevents later accesses. Afterwards the pages can be unmapped.
        arena.close();
        closed = true;
        cleanable.clean();
    }

    @Override
    public String toString() {
        return kind() + " memory " + name() + " of " + size() + " bytes";
    }

    private static SharedMemory filled(Kind kind, String name, int fd, long size, MemoryOptions options) throws IOException {
        try {
            // A memory file is created with all permissions. For other kinds the umask may have removed some of them.
            if (kind == Kind.MEMFD || options.permissions() != OWNER_ONLY) {
                Libc.FCHMOD.on(name, fd, options.permissions());
            }
            Libc.FTRUNCATE.on(name, fd, size);
            if (options.written()) {
                Zeros.write(name, fd, size);
            }
            return mapped(kind, name, fd, true, size);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(fd);
            Mapping.removeName(kind, name);
            throw failure;
        }
    }

    private static SharedMemory mapped(Kind kind, String name, int fd, boolean created, long size)
            throws IOException {
        long address = Libc.MMAP.on(name, 0L, size, PROT_READ_WRITE, MAP_SHARED, fd, 0L);
        return new SharedMemory(new Mapping(kind, name, fd, created, address, size));
    }

    private static SharedMemory attached(int id, long size, boolean created) throws IOException {
        String name = Integer.toString(id);
        try {
            long address = Libc.SHMAT.on("segment " + id, id, 0L, 0);
            return new SharedMemory(new Mapping(Kind.SYSV, name, -1, created, address, size));
        } catch (IOException failure) {
            if (created) {
                Mapping.removeName(Kind.SYSV, name);
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
            throw new IllegalArgumentException(name + " is not the name of a POSIX object: it must begin with a slash and contain no other");
        }
        return name;
    }

    private static int openPosix(String name, int flags) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.SHM_OPEN.on(posix(name), Libc.text(scratch, name), O_RDWR | flags, OWNER_ONLY);
        }
    }

    private static int openFile(String path, int flags) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            return (int) Libc.OPEN.on(path, Libc.text(scratch, path), O_RDWR | O_CLOEXEC | flags, OWNER_ONLY);
        }
    }
}
