package dev.thalweg;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

import dev.thalweg.internal.Libc;

/** Finds the sizes and the number of reserved huge pages, and explains failures. */
final class HugePages {
    private static final int EPERM = 1;
    private static final int ENOMEM = 12;
    private static final int ENODEV = 19;
    private static final int EINVAL = 22;
    private static final int ENOSYS = 38;
    private static final String USUAL = "Hugepagesize:";

    private HugePages() {}

    /** Returns the default size of a huge page in bytes. */
    static long usual() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
                if (line.startsWith(USUAL)) {
                    return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
                }
            }
        } catch (IOException | NumberFormatException unknown) {
            // An unreadable file is treated like one that does not contain the size.
        }
        throw new UnsupportedOperationException("this kernel does not support huge pages: /proc/meminfo does not contain " + USUAL);
    }

    /** Returns the number of free huge pages of this size; -1 if the kernel does not report it. */
    static long free(long bytes) {
        return number(folder(bytes).resolve("free_hugepages"));
    }

    private static Path folder(long bytes) {
        return Path.of("/sys/kernel/mm/hugepages/hugepages-" + (bytes >> 10) + "kB");
    }

    private static long number(Path file) {
        try {
            return Long.parseLong(Files.readString(file).strip());
        } catch (IOException | NumberFormatException unknown) {
            return -1;
        }
    }

    /** Returns {@code refused} with the requested number of pages and advice for the user. */
    static SystemCallException explained(SystemCallException refused, SharedMemory.Kind kind, long size, long page) {
        String pages = size / page + " huge pages of " + (page >> 10) + " KiB";
        String advice = switch (refused.errno()) {
            case ENOMEM -> "%d are reserved and %d of them free; an administrator reserves them by writing their number to %s"
                    .formatted(number(folder(page).resolve("nr_hugepages")), free(page), folder(page).resolve("nr_hugepages"));
            case EPERM -> "requires CAP_IPC_LOCK or the group of /proc/sys/vm/hugetlb_shm_group; MEMFD needs neither";
            case EINVAL, ENODEV, ENOSYS -> Files.isDirectory(folder(page))
                    ? "the kernel supports pages of this size; see the limits in /proc/sys/kernel/shmmax and shmall"
                    : "the kernel does not support pages of this size; the supported sizes are in " + folder(page).getParent();
            default -> "";
        };
        return advice.isEmpty() ? refused : Libc.failure(refused.call(), kind + " memory of " + pages, refused.errno(), advice);
    }
}
