package dev.thalweg.afl;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

import dev.thalweg.SharedMemory;

/**
 * Where the worker is in the fuzzer's protocol, in memory that outlives it: what its supervisor has to say to the
 * fuzzer in its stead depends on that.
 */
final class Phase {
    /** Nothing has been said to the fuzzer: the first worker is about to. New memory begins here. */
    static final int STARTS = 0;
    /** The fuzzer is being greeted: it may have heard it or not. */
    static final int GREETS = 1;
    /** Waiting for the fuzzer: nothing is owed. */
    static final int IDLE = 2;
    /** The fuzzer waits for a process id. */
    static final int OWES_PID = 3;
    /** The fuzzer knows the process, and waits for its status. */
    static final int OWES_STATUS = 4;
    /** The status is being written: it may have arrived or not. */
    static final int SAYS_STATUS = 5;

    private static final VarHandle WORD = ValueLayout.JAVA_INT.varHandle();
    // Behind the phase: whether test cases come by shared memory, which the first worker learns and the later ones ask.
    private static final long SHARED_INPUT = Integer.BYTES;
    // Nonzero if the worker ends by its own exit and not by a signal.
    private static final long EXITS = 2 * Integer.BYTES;
    private static final int BYTES = 3 * Integer.BYTES;

    // Kept, for what nobody can reach loses its descriptor, by which later workers open it.
    private final SharedMemory memory;
    private final MemorySegment segment;

    private Phase(SharedMemory memory, MemorySegment segment) {
        this.memory = memory;
        this.segment = segment;
    }

    private static Phase in(SharedMemory memory) {
        return new Phase(memory, memory.globalSegment());
    }

    /** A new one. */
    static Phase create() throws IOException {
        return in(SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-afl-phase", BYTES));
    }

    /** The supervisor's. */
    static Phase open(String name) throws IOException {
        return in(SharedMemory.open(SharedMemory.Kind.MEMFD, name));
    }

    /** One that nobody looks at. */
    static Phase unseen() {
        return new Phase(null, Arena.global().allocate(BYTES));
    }

    String name() {
        return memory.name();
    }

    boolean sharesInput() {
        return segment.get(ValueLayout.JAVA_INT, SHARED_INPUT) != 0;
    }

    void setSharesInput(boolean shares) {
        segment.set(ValueLayout.JAVA_INT, SHARED_INPUT, shares ? 1 : 0);
    }

    boolean exits() {
        return (int) WORD.getAcquire(segment, EXITS) != 0;
    }

    void setExits(boolean exits) {
        WORD.setRelease(segment, EXITS, exits ? 1 : 0);
    }

    int get() {
        return (int) WORD.getAcquire(segment, 0L);
    }

    // Released before the system call that it announces; a killed process loses no store of its past.
    void set(int phase) {
        WORD.setRelease(segment, 0L, phase);
    }
}
