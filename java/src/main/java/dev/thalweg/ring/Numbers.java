package dev.thalweg.ring;

/** Numbers of system calls without a function in the C library (asm/unistd.h). */
final class Numbers {
    /** The C library has no function {@code fstat} before glibc 2.33. */
    static final long FSTAT = of(5, 80);
    static final long FUTEX = of(202, 98);
    static final long SET_ROBUST_LIST = of(273, 99);
    static final long GETTID = of(186, 178);
    // System calls that are newer than Linux 5.0 have equal numbers on amd64 and aarch64.
    static final long PIDFD_OPEN = 434;
    static final long FUTEX_WAITV = 449;

    private Numbers() {}

    private static long of(long amd64, long aarch64) {
        String machine = System.getProperty("os.arch");
        return switch (machine) {
            case "amd64" -> amd64;
            case "aarch64" -> aarch64;
            default -> throw new UnsupportedOperationException(
                    "rings are supported on amd64 and aarch64 only, not on " + machine);
        };
    }
}
