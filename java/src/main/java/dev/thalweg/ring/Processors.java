package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.BitSet;

import dev.thalweg.internal.Libc;

/** Determines if two processes can run at the same time. */
final class Processors {
    /** Size of a cpu_set_t. */
    private static final long BYTES = 128;

    private Processors() {}

    /**
     * Returns true if this process and another one can only use the same single processor, so that they never run at
     * the same time. Two processes that are pinned to different processors do not share one, although each sees one
     * processor only.
     */
    static boolean isAloneWith(int process) {
        if (Runtime.getRuntime().availableProcessors() > 1) {
            return false;
        }
        BitSet ours = allowed(0);
        BitSet theirs = process > 0 ? allowed(process) : new BitSet();
        // A mask of several processors with a parallelism of 1 means a cgroup quota. Polling then takes time from the
        // peer.
        return ours.cardinality() != 1 || theirs.isEmpty() || isOne(ours, theirs);
    }

    /** Returns true if the union of both sets is one processor. */
    static boolean isOne(BitSet ours, BitSet theirs) {
        var either = (BitSet) ours.clone();
        either.or(theirs);
        return either.cardinality() <= 1;
    }

    /** Returns the processors on which a process may run, 0 being this thread; empty if unknown. */
    private static BitSet allowed(int process) {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment set = scratch.allocate(BYTES, 8);
            long refused = Libc.SCHED_GETAFFINITY.attempt(process, BYTES, set);
            return refused < 0 ? new BitSet() : BitSet.valueOf(set.toArray(JAVA_BYTE));
        }
    }
}
