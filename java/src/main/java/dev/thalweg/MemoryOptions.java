package dev.thalweg;

/**
 * Configuration of new {@link SharedMemory}.
 *
 * @param permissions permission bits of chmod(2) for reading and writing. Both bits of the owner are required. The
 *                    umask does not apply
 * @param hugePage    size of the huge pages in bytes, a power of two; 0 for ordinary pages
 * @param written     true if zeros are written to the whole memory at creation
 */
public record MemoryOptions(int permissions, long hugePage, boolean written) {
    static final int OWNER_ONLY = 0600;
    /** In the flags of memfd_create and shmget, the binary logarithm of the huge page size starts at this bit. */
    private static final int HUGE_SHIFT = 26;

    /** Accessible by its owner only, with ordinary pages that are allocated at first access. */
    public static final MemoryOptions USUAL = new MemoryOptions(OWNER_ONLY, 0, false);

    /**
     * Checks the values.
     *
     * @throws IllegalArgumentException if one is invalid
     */
    public MemoryOptions {
        if ((permissions & ~0666) != 0 || (permissions & OWNER_ONLY) != OWNER_ONLY) {
            throw new IllegalArgumentException("permissions: " + Integer.toOctalString(permissions)
                    + " (octal) must contain 600 and only bits of 666");
        }
        if (hugePage < 0 || hugePage == 1 || Long.bitCount(hugePage) > 1) {
            throw new IllegalArgumentException("a huge page of " + hugePage + " bytes: must be a power of two");
        }
    }

    /**
     * Returns a copy with other permissions.
     *
     * @param permissions the permission bits, such as octal {@code 0660} for a group
     * @return the options
     */
    public MemoryOptions permitting(int permissions) {
        return new MemoryOptions(permissions, hugePage, written);
    }

    /**
     * Returns a copy with huge pages of this machine's default size, for {@code MEMFD} and {@code SYSV}. Creation takes
     * the pages from those that an administrator has reserved ({@code /sys/kernel/mm/hugepages}). {@link
     * SharedMemory#preferHugePages()} needs no reserved pages.
     *
     * @return the options
     * @throws UnsupportedOperationException if the kernel does not support huge pages
     */
    public MemoryOptions withHugePages() {
        return withHugePages(HugePages.usual());
    }

    /**
     * Returns a copy with huge pages of a given size.
     *
     * @param bytes size of each page, one of those in {@code /sys/kernel/mm/hugepages}
     * @return the options
     */
    public MemoryOptions withHugePages(long bytes) {
        return new MemoryOptions(permissions, bytes, written);
    }

    /**
     * Returns a copy that writes zeros to the whole memory at creation. The file system then allocates all blocks of
     * the file, so later stores cannot fail because it is full. Supported for {@code FILE}, {@code POSIX} and {@code
     * MEMFD} with ordinary pages. A copy-on-write file system (btrfs) may still be full later. To map the pages, so
     * that no later access waits, call {@link SharedMemory#populate()}.
     *
     * @return the options
     */
    public MemoryOptions prewritten() {
        return new MemoryOptions(permissions, hugePage, true);
    }

    /** Returns the size of memory for this number of bytes, rounded up to whole huge pages. */
    long sizeFor(SharedMemory.Kind kind, long bytes) {
        boolean huge = hugePage > 0;
        if (huge && kind != SharedMemory.Kind.MEMFD && kind != SharedMemory.Kind.SYSV) {
            throw new IllegalArgumentException(kind + " memory cannot use huge pages; MEMFD and SYSV can");
        }
        if (written && (huge || kind == SharedMemory.Kind.SYSV)) {
            throw new IllegalArgumentException(
                    (huge ? "huge pages" : kind + " memory") + " cannot be written as a file: use populate()");
        }
        if (bytes < 1 || huge && bytes > Long.MAX_VALUE - hugePage) {
            throw new IllegalArgumentException("size: " + bytes + " must be at least 1 byte and fit the address space");
        }
        return huge ? Math.ceilDiv(bytes, hugePage) * hugePage : bytes;
    }

    /** Returns the flags of memfd_create or shmget for huge pages and their size; 0 for ordinary pages. */
    int hugeFlags(int flag) {
        return hugePage == 0 ? 0 : flag | Long.numberOfTrailingZeros(hugePage) << HUGE_SHIFT;
    }
}
