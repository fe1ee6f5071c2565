package dev.thalweg.afl;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

import dev.thalweg.SharedMemory;

/**
 * Where the worker is in the fuzzer's protocol, in memory that outlives it: what its supervisor has to say to the
 * fuzzer in its stead depends on that.
 */
final class Phase {
    /** Waiting for the fuzzer: nothing is owed. */
    static final int IDLE = 0;
    /** The fuzzer waits for a process id. */
    static final int OWES_PID = 1;
    /** The fuzzer knows the process, and waits for its status. */
    static final int OWES_STATUS = 2;
    /** The status is being written: it may have arrived or not. */
    static final int SAYS_STATUS = 3;

    private static final VarHandle WORD = ValueLayout.JAVA_INT.varHandle();

    private final SharedMemory memory;
    private final MemorySegment segment;

    private Phase(SharedMemory memory) {
        this.memory = memory;
        this.segment = memory.globalSegment();
    }

    /** A new one, idle. */
    static Phase create() throws IOException {
        return new Phase(SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-afl-phase", Integer.BYTES));
    }

    /** The supervisor's. */
    static Phase open(String name) throws IOException {
        return new Phase(SharedMemory.open(SharedMemory.Kind.MEMFD, name));
    }

    String name() {
        return memory.name();
    }

    int get() {
        return (int) WORD.getAcquire(segment, 0L);
    }

    // Released before the system call that it announces; a killed process loses no store of its past.
    void set(int phase) {
        WORD.setRelease(segment, 0L, phase);
    }
}
