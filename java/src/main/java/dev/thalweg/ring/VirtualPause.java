package dev.thalweg.ring;

import java.util.concurrent.locks.LockSupport;

/**
 * The pauses of one wait of a virtual thread. A call that blocks in the kernel would keep the carrier thread, and the peer
 * may need that carrier; so the thread yields first and then parks, each time for longer.
 */
final class VirtualPause {
    private static final int YIELDS = 64;
    private static final long FIRST_NANOS = 1_000;
    private static final long LONGEST_NANOS = 1_000_000;

    private int yields;
    private long nanos = FIRST_NANOS;

    /** Whether this thread may not block in the kernel. */
    static boolean isNeeded() {
        return Thread.currentThread().isVirtual();
    }

    /** Lets other threads run. An interrupt is kept for the caller. */
    void once(Deadline deadline) {
        if (yields < YIELDS) {
            yields++;
            Thread.yield();
            return;
        }
        // With the flag set a thread does not park.
        boolean interrupted = Thread.interrupted();
        LockSupport.parkNanos(Math.min(nanos, deadline.left()));
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        nanos = Math.min(2 * nanos, LONGEST_NANOS);
    }
}
