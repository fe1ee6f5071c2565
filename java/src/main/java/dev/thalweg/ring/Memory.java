package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

import dev.thalweg.internal.Libc;

/**
 * The memory file of one side. Its owner creates, seals and maps it for writing; the peer checks it and maps it
 * read-only. The data is mapped twice, one copy after the other, so that data that wraps around the end is contiguous.
 * Closing its arena unmaps it.
 */
final class Memory {
    private static final int MFD_CLOEXEC_ALLOW_SEALING = 3;
    private static final int MFD_NOEXEC_SEAL = 8;
    private static final int F_ADD_SEALS = 1033;
    private static final int F_GET_SEALS = 1034;
    private static final int SEAL_SEAL = 1;
    private static final int SEAL_SHRINK_GROW = 6;
    private static final int SEAL_WRITE = 8;
    private static final int SEAL_FUTURE_WRITE = 16;
    private static final int PROT_NONE = 0;
    private static final int PROT_READ = 1;
    private static final int PROT_READ_WRITE = 3;
    private static final int MAP_SHARED_FIXED = 0x11;
    private static final int MAP_PRIVATE_ANONYMOUS = 0x22;
    private static final int MADV_POPULATE_READ = 22;
    private static final int MADV_POPULATE_WRITE = 23;
    private static final int SEEK_END = 2;
    /** Memory files are on an internal tmpfs of the kernel (linux/magic.h). */
    private static final long TMPFS_MAGIC = 0x0102_1994;
    /** Size of struct statfs, which begins with the file system type. */
    private static final int STATFS = 120;
    /** Size of struct stat, and the offset of st_blocks. On aarch64 the struct is smaller, with the same offset. */
    private static final int STAT = 144;
    private static final int STAT_BLOCKS = 64;
    /** Unit of st_blocks, whatever st_blksize is (stat(2)). */
    private static final int BLOCK = 512;

    /** Page, data, and the data again. */
    final MemorySegment bytes;
    /** A private copy of the fixed fields, checked before the mapping. */
    final Geometry geometry;

    private final Alive alive;
    private final long mask;

    private Memory(MemorySegment bytes, Geometry geometry, Alive alive) {
        this.bytes = bytes;
        this.geometry = geometry;
        this.alive = alive;
        this.mask = geometry.capacity() - 1;
    }

    /**
     * The memory of this side, and its descriptor for the peer.
     *
     * @param memory     the mapped memory
     * @param descriptor the descriptor, which the caller must close
     */
    record Made(Memory memory, int descriptor) {}

    /** Creates the memory of this side. */
    static Made make(Role role, Geometry geometry, Arena arena) throws IOException {
        int fd = create();
        try {
            long size = geometry.header() + geometry.dataOf(role);
            Libc.FTRUNCATE.on("a memory file", fd, size);
            // Allocates everything now, so that a lack of memory is an error here and not later.
            Libc.FALLOCATE.on("a memory file of " + size + " bytes", fd, 0, 0L, size);
            write(fd, geometry.toBytes(role));
            Memory memory = map(fd, role, geometry, PROT_READ_WRITE, arena);
            memory.alive.begin(memory.bytes);
            Libc.FCNTL.on("a memory file", fd, F_ADD_SEALS, SEAL_SHRINK_GROW | SEAL_FUTURE_WRITE | SEAL_SEAL);
            return new Made(memory, fd);
        } catch (IOException | RuntimeException failure) {
            Libc.CLOSE.attempt(fd);
            throw failure;
        }
    }

    /**
     * Checks and maps the peer's side, and closes the descriptor. All values are obtained from the kernel or copied
     * before they are checked, so no decision depends on bytes that the peer can still change.
     */
    static Memory ofPeer(int fd, Role role, Arena arena) throws IOException {
        try {
            checkSeals(fd);
            Geometry geometry = Geometry.parse(read(fd), role);
            long told = geometry.header() + geometry.dataOf(role);
            long size = Libc.LSEEK.on("the peer's memory", fd, 0L, SEEK_END);
            if (size != told) {
                throw new RingException.Corrupt("the peer's memory has " + size + " bytes, but " + told + " were announced");
            }
            checkAllocated(fd, size);
            return map(fd, role, geometry, PROT_READ, arena);
        } finally {
            Libc.CLOSE.attempt(fd);
        }
    }

    /** Returns the offset of a position. The next {@code capacity} bytes from there are mapped. */
    long at(long position) {
        return geometry.header() + (position & mask);
    }

    /** Removes the word of this side from its robust list, so that the kernel does not mark it any more. */
    void retire() {
        alive.end();
    }

    private static int create() throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment label = scratch.allocateFrom("thalweg-ring");
            // vm.memfd_noexec = 2 requires MFD_NOEXEC_SEAL. Before Linux 6.3 the flag does not exist.
            long fd = Libc.MEMFD_CREATE.attempt(label, MFD_CLOEXEC_ALLOW_SEALING | MFD_NOEXEC_SEAL);
            return (int) (fd >= 0 ? fd : Libc.MEMFD_CREATE.on("a ring", label, MFD_CLOEXEC_ALLOW_SEALING));
        }
    }

    private static void checkSeals(int fd) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment system = scratch.allocate(STATFS, 8);
            long seals = Libc.FCNTL.attempt(fd, F_GET_SEALS, 0);
            if (seals < 0) {
                throw new RingException.NotPermitted("the peer's memory cannot be sealed: errno " + -seals);
            }
            Libc.FSTATFS.on("the peer's memory", fd, system);
            boolean fixed = (seals & SEAL_SHRINK_GROW) == SEAL_SHRINK_GROW;
            boolean alone = (seals & (SEAL_WRITE | SEAL_FUTURE_WRITE)) != 0;
            // Accepts ordinary pages only, because huge pages may be exhausted when they are first accessed.
            boolean ordinary = system.get(JAVA_LONG, 0) == TMPFS_MAGIC;
            if (!(fixed && alone && ordinary)) {
                throw new RingException.NotPermitted("the peer's memory is refused (fixed size: " + fixed
                        + ", only the peer can write: " + alone + ", ordinary pages: " + ordinary + ")");
            }
        }
    }

    /**
     * Checks that every page is allocated, in memory or in swap. The kernel charges a missing page to the process that
     * touches it first, and sends SIGBUS if it has no memory for the page. The seals against writing prevent that the
     * peer frees pages later.
     */
    private static void checkAllocated(int fd, long size) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment known = scratch.allocate(STAT, 8);
            long failed = Libc.SYSCALL.attempt(Numbers.FSTAT, (long) fd, known.address());
            if (failed < 0) {
                throw Libc.failure("fstat", "the peer's memory", (int) -failed);
            }
            long allocated = known.get(JAVA_LONG, STAT_BLOCKS) * BLOCK;
            if (allocated < size) {
                throw new RingException.Corrupt(
                        "only " + allocated + " of the " + size + " bytes of the peer's memory are allocated");
            }
        }
    }

    private static void write(int fd, byte[] fixed) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment from = scratch.allocateFrom(JAVA_BYTE, fixed);
            long got = Libc.PWRITE.on("a memory file", fd, from, from.byteSize(), 0L);
            if (got != fixed.length) {
                throw new IOException("wrote only " + got + " bytes of " + fixed.length);
            }
        }
    }

    private static byte[] read(int fd) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment fixed = scratch.allocate(Geometry.LENGTH);
            long got = Libc.PREAD.attempt(fd, fixed, fixed.byteSize(), 0L);
            if (got < 0) {
                // The descriptor is not open for reading.
                throw new RingException.NotPermitted("the peer's memory cannot be read: errno " + -got);
            }
            return fixed.asSlice(0, got).toArray(JAVA_BYTE);
        }
    }

    private static Memory map(int fd, Role role, Geometry geometry, int protection, Arena arena) throws IOException {
        long header = geometry.header();
        long data = geometry.dataOf(role);
        long whole = header + 2 * data;
        long base = Libc.MMAP.on(whole + " bytes", 0L, whole, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0L);
        // From here on, closing the arena unmaps everything, including replaced parts.
        var alive = new Alive();
        MemorySegment bytes = MemorySegment.ofAddress(base).reinterpret(whole, arena, gone -> {
            alive.end();
            Libc.MUNMAP.attempt(gone.address(), gone.byteSize());
        });
        Libc.MMAP.on("a memory file", base, header + data, protection, MAP_SHARED_FIXED, fd, 0L);
        if (data > 0) {
            Libc.MMAP.on("a memory file", base + header + data, data, protection, MAP_SHARED_FIXED, fd, header);
        }
        // Ignores errors, because this only avoids page faults in the first pass over the ring, and older kernels do
        // not support it.
        boolean ours = protection == PROT_READ_WRITE;
        Libc.MADVISE.attempt(base, whole, ours ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
        return new Memory(ours ? bytes : bytes.asReadOnly(), geometry, alive);
    }
}
