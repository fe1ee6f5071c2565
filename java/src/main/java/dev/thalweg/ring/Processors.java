package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.BitSet;

import dev.thalweg.internal.Libc;

/** Whether two processes can run at the same time. */
final class Processors {
    /** Of a cpu_set_t. */
    private static final long BYTES = 128;

    private Processors() {}

    /**
     * Whether we and another process have one processor between us: then it runs only when we do not. Two that are kept
     * on a processor each have two, although either of them sees only its own.
     */
    static boolean isAloneWith(int process) {
        if (Runtime.getRuntime().availableProcessors() > 1) {
            return false;
        }
        BitSet ours = allowed(0);
        BitSet theirs = process > 0 ? allowed(process) : new BitSet();
        // With a quota of one processor (cgroup) looking takes from the peer, wherever it runs.
        return ours.cardinality() != 1 || theirs.isEmpty() || isOne(ours, theirs);
    }

    /** Whether both sets together are one processor. */
    static boolean isOne(BitSet ours, BitSet theirs) {
        var either = (BitSet) ours.clone();
        either.or(theirs);
        return either.cardinality() <= 1;
    }

    /** Where a process may run, 0 being this thread; empty if that is not known. */
    private static BitSet allowed(int process) {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment set = scratch.allocate(BYTES, 8);
            long refused = Libc.SCHED_GETAFFINITY.attempt(process, BYTES, set);
            return refused < 0 ? new BitSet() : BitSet.valueOf(set.toArray(JAVA_BYTE));
        }
    }
}
