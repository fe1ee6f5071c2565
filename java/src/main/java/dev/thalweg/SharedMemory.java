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
 * <p>Four kinds, one interface: System V segments ({@code shmget}; what AFL++ uses), POSIX objects
 * ({@code shm_open}), anonymous memory files ({@code memfd_create}) and mapped files. All are made zeroed. The
 * {@linkplain #segment() segment} is bounds-checked; touching it after {@link #close()} throws
 * {@link IllegalStateException} and never ends the JVM. {@link #globalSegment()} is for memory that is never given back.
 *
 * <p>What others do to it is another matter: who makes a mapped file or an unsealed memory file shorter takes the
 * pages away, and touching them then is an {@link InternalError}. {@link #seal()} prevents that for memory files. The
 * same happens where a file system has no room left for a page that is touched first; {@link MemoryOptions#prewritten()}
 * prevents that.
 *
 * <p>{@link #close()} is how it ends. What nobody closes is given back, as by closing it, some time after the garbage
 * collector has found that nobody can reach it, its segment or a slice of that: so keep one of them while others are to
 * open the memory by its name, or a mere address of it is used. A JVM that ends without closing it leaves the names of {@code SYSV}, {@code POSIX} and
 * {@code FILE} memory behind.
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
    /** Until the permissions that were asked for are set. */
    private static final int OWNER_ONLY = MemoryOptions.OWNER_ONLY;
    private static final int PROT_READ_WRITE = 3;
    private static final int MAP_SHARED = 1;
    private static final int MADV_POPULATE_WRITE = 23;
    private static final int MADV_HUGEPAGE = 14;
    private static final int MFD_CLOEXEC = 1;
    private static final int MFD_ALLOW_SEALING = 2;
    private static final int MFD_HUGETLB = 4;
    private static final int F_ADD_SEALS = 1033;
    private static final int F_GET_SEALS = 1034;
    private static final int SEAL_SHRINK = 2;
    private static final int SEAL_SHRINK_GROW_SEAL = 7;
    private static final int IPC_CREAT_EXCL = 03000;
    private static final int IPC_STAT = 2;
    private static final int SHM_HUGETLB = 04000;
    // struct shmid_ds of x86-64 and aarch64: the size lies behind the permissions (asm-generic/shmbuf.h).
    private static final long SHMID_DS = 112;
    private static final long SHM_SEGSZ = 48;
    private static final int SEEK_END = 2;
    private static final long CLEARED_NATIVELY = Measured.number("clear.native-from", 0);
    private static final Cleaner CLEANER = Cleaner.create();

    /** What is given back, by closing or by the cleaner; it does not keep the segment. */
    private final Mapping mapping;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    /** Gives it back once, however often it is told to. */
    final Cleaner.Cleanable cleanable;
    private boolean closed;
    /** Once true it stays so: a seal is never broken. */
    private volatile boolean keepsItsPages;

    private SharedMemory(Mapping mapping) {
        this.mapping = mapping;
        this.segment = MemorySegment.ofAddress(mapping.address()).reinterpret(mapping.size(), arena, null);
        // Every slice and buffer has the scope, which so is reachable for as long as anybody can touch the memory. In a
        // JDK where slices had scopes of their own this would be wrong: there nothing is cleaned.
        var scope = segment.scope();
        boolean shared = scope == arena.scope() && scope == segment.asSlice(0, 1).scope();
        this.cleanable = CLEANER.register(shared ? scope : SharedMemory.class, mapping);
    }

    /**
     * Makes new memory, zeroed, for its owner only.
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
     * Makes new memory, zeroed.
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
     * Joins memory that somebody made.
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
     * The memory as a segment that lives as long as the process: no access asks whether it is still there, which in a
     * loop over single bytes is a few percent. From this call on the pages stay mapped, whatever becomes of this object;
     * {@link #close()} still ends {@link #segment()}, closes the descriptor and removes the name. For memory that a
     * program keeps to its end anyway: asked for again and again, such memory is a leak.
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
            // The cleaner, which looks at what was just set, does not run before this.
            Reference.reachabilityFence(segment);
        }
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
        return mapping.kind();
    }

    /**
     * What another process opens it by.
     *
     * @return a number, a path or a name, by kind
     */
    public String name() {
        return mapping.name();
    }

    /**
     * Sets all of it to zero: by the C library's memset if no process can take pages away from it (System V segments, and
     * memory files that are sealed), else by {@link MemorySegment#fill}.
     *
     * @throws InternalError         if another process truncated the file, or its file system is full
     * @throws IllegalStateException if it is closed
     */
    public void clear() {
        if (size() >= CLEARED_NATIVELY && keepsItsPages()) {
            Libc.memset(segment, (byte) 0);
        } else {
            segment.fill((byte) 0);
        }
    }

    /** Whether no access can be a SIGBUS, which would end the JVM inside of a downcall. */
    private boolean keepsItsPages() {
        if (kind() == Kind.SYSV || keepsItsPages) {
            return true;
        }
        synchronized (this) {
            if (kind() == Kind.MEMFD && !closed) {
                long seals = Libc.FCNTL.attempt(mapping.fd(), F_GET_SEALS, 0);
                long end = Libc.LSEEK.attempt(mapping.fd(), 0L, SEEK_END);
                // It may have been made shorter before it was sealed.
                keepsItsPages = seals >= 0 && (seals & SEAL_SHRINK) != 0 && end >= size();
            }
        }
        return keepsItsPages;
    }

    /**
     * Touches every page now, so that no later access waits for the kernel.
     *
     * @throws IOException           if memory is not available; nothing is lost, but later accesses may wait
     * @throws IllegalStateException if it is closed
     */
    public void populate() throws IOException {
        advise(MADV_POPULATE_WRITE);
    }

    /**
     * Asks for huge pages. The kernel gives them where its settings allow it for this kind of memory
     * ({@code /sys/kernel/mm/transparent_hugepage}); {@link MemoryOptions#withHugePages()} insists on them.
     *
     * @throws IOException           if the kernel has none, or the memory consists of huge pages already
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
            // The kernel is told a mere number, which keeps nothing mapped.
            Reference.reachabilityFence(segment);
        }
    }

    /**
     * Fixes the size for good: nobody can make it shorter, so that nobody can take pages away from under us.
     *
     * @throws IOException                   if a system call fails
     * @throws IllegalStateException         if it is closed
     * @throws UnsupportedOperationException if it is not a memory file
     */
    public synchronized void seal() throws IOException {
        if (kind() != Kind.MEMFD) {
            throw new UnsupportedOperationException(kind() + " memory cannot be sealed; MEMFD can");
        }
        check();
        try {
            Libc.FCNTL.on(name(), mapping.fd(), F_ADD_SEALS, SEAL_SHRINK_GROW_SEAL);
        } finally {
            Reference.reachabilityFence(segment);
        }
    }

    /** The address and the descriptor may be somebody else's after closing. */
    private void check() {
        if (closed) {
            throw new IllegalStateException(this + " is closed");
        }
    }

    /**
     * Unmaps it, and removes its name if this object made it. Once is enough; more does no harm.
     *
     * @throws IllegalStateException if a thread is inside a bulk operation on it; it stays open
     */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        // After this nobody is inside, and nobody gets in: only then may the pages go.
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
            // A memory file begins with all permissions, and a umask may have taken some of the others'.
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
            throw new IllegalArgumentException(name + " is not the name of a POSIX object: a slash, then no other");
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
