package dev.thalweg;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;

import dev.thalweg.internal.Libc;

/**
 * The kernel resources of one {@link SharedMemory}, and their release. This record must not refer to the memory's
 * segment, because a cleaner holds the record until the segment is unreachable.
 *
 * @param fd      descriptor of the memory; unused for System V segments, which have none
 * @param created true if this object created the name, so that releasing also removes the name
 * @param kept    true if the pages stay mapped when everything else is released
 */
record Mapping(SharedMemory.Kind kind, String name, int fd, boolean created, long address, long size, AtomicBoolean kept)
        implements Runnable {
    private static final int IPC_RMID = 0;

    Mapping(SharedMemory.Kind kind, String name, int fd, boolean created, long address, long size) {
        this(kind, name, fd, created, address, size, new AtomicBoolean());
    }

    /** Releases everything. Afterwards no code may access the memory, unless {@code kept} is true. */
    @Override
    public void run() {
        if (!kept.get()) {
            if (kind == SharedMemory.Kind.SYSV) {
                Libc.SHMDT.attempt(address);
            } else {
                Libc.MUNMAP.attempt(address, size);
            }
        }
        if (kind != SharedMemory.Kind.SYSV) {
            Libc.CLOSE.attempt(fd);
        }
        if (created) {
            removeName(kind, name);
        }
    }

    /** Removes the name by which other processes open the memory. */
    static void removeName(SharedMemory.Kind kind, String name) {
        try (Arena scratch = Arena.ofConfined()) {
            switch (kind) {
                case SYSV -> Libc.SHMCTL.attempt(Integer.parseInt(name), IPC_RMID, MemorySegment.NULL);
                case POSIX -> Libc.SHM_UNLINK.attempt(Libc.text(scratch, name));
                case FILE -> Path.of(name).toFile().delete();
                case MEMFD -> {}
            }
        }
    }
}
