package dev.thalweg;

import java.io.IOException;
import java.lang.foreign.Arena;

import dev.thalweg.internal.Libc;

/** Writes zeros to a new file, so that every block is allocated. */
final class Zeros {
    private static final long PIECE = 1 << 20;
    private static final int EINVAL = 22;
    private static final int ENOSYS = 38;
    private static final int EOPNOTSUPP = 95;

    private Zeros() {}

    /**
     * Writes the zeros from the start.
     *
     * @throws IOException if there is not enough room, or the disk fails
     */
    static void write(String name, int fd, long size) throws IOException {
        // If the file system is full, preallocation fails before anything is written. Some file systems do not support
        // preallocation, and on others it guarantees no blocks. Therefore zeros are written too.
        long aside = Libc.FALLOCATE.attempt(fd, 0, 0L, size);
        if (aside < 0 && aside != -EOPNOTSUPP && aside != -ENOSYS && aside != -EINVAL) {
            throw Libc.failure("fallocate", size + " bytes for " + name, (int) -aside);
        }
        try (Arena arena = Arena.ofConfined()) {
            var zeros = arena.allocate(Math.min(PIECE, size));
            for (long at = 0; at < size; ) {
                long most = Math.min(zeros.byteSize(), size - at);
                long wrote = Libc.PWRITE.on(name + " at " + at + " of " + size + " bytes", fd, zeros, most, at);
                if (wrote == 0) {
                    throw new IOException(name + " accepts only " + at + " of " + size + " bytes");
                }
                at += wrote;
            }
        }
    }
}
