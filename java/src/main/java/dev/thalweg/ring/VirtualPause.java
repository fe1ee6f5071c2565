package dev.thalweg.ring;

import java.util.concurrent.locks.LockSupport;

/**
 * Pauses of one waiting thread that must not block in the kernel. For a virtual thread, such a call would occupy the
 * carrier thread, which the peer may need. The thread therefore first yields, and later parks, each time for longer.
 */
final class VirtualPause {
    private static final int YIELDS = 64;
    private static final long FIRST_NANOS = 1_000;
    private static final long LONGEST_NANOS = 1_000_000;

    private int yields;
    private long nanos = FIRST_NANOS;

    /** Returns true if this thread is virtual and must not block in the kernel. */
    static boolean isNeeded() {
        return Thread.currentThread().isVirtual();
    }

    /** Lets other threads run. Keeps the interrupt status. */
    void once(Deadline deadline) {
        if (yields < YIELDS) {
            yields++;
            Thread.yield();
            return;
        }
        // A thread with a set interrupt flag does not park.
        boolean interrupted = Thread.interrupted();
        LockSupport.parkNanos(Math.min(nanos, deadline.left()));
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        nanos = Math.min(2 * nanos, LONGEST_NANOS);
    }
}
