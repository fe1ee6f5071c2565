package dev.thalweg.afl;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

import dev.thalweg.SharedMemory;

/**
 * The worker's position in the fuzzer's protocol, in memory that outlives the worker. The supervisor continues the
 * protocol from there.
 */
final class Phase {
    /** Nothing was sent to the fuzzer yet: the first worker is starting. New memory has this value. */
    static final int STARTS = 0;
    /** The greeting is being sent: it may have arrived or not. */
    static final int GREETS = 1;
    /** Waiting for the fuzzer: no answer is due. */
    static final int IDLE = 2;
    /** The fuzzer waits for a process id. */
    static final int OWES_PID = 3;
    /** The fuzzer knows the process, and waits for its status. */
    static final int OWES_STATUS = 4;
    /** The status is being sent: it may have arrived or not. */
    static final int SAYS_STATUS = 5;

    private static final VarHandle WORD = ValueLayout.JAVA_INT.varHandle();
    // Offset of a word that is nonzero if test cases arrive by shared memory. The first worker stores it for later
    // workers.
    private static final long SHARED_INPUT = Integer.BYTES;
    // Offset of a word that is nonzero if the worker has run its shutdown hooks. A signal such as SIGKILL skips them.
    private static final long EXITS = 2 * Integer.BYTES;
    private static final int BYTES = 3 * Integer.BYTES;

    // Keeps the memory reachable. Otherwise a cleaner would close the descriptor, by which later workers open the
    // memory.
    private final SharedMemory memory;
    private final MemorySegment segment;

    private Phase(SharedMemory memory, MemorySegment segment) {
        this.memory = memory;
        this.segment = segment;
    }

    private static Phase in(SharedMemory memory) {
        return new Phase(memory, memory.globalSegment());
    }

    /** Creates a new phase. */
    static Phase create() throws IOException {
        return in(SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-afl-phase", BYTES));
    }

    /** Opens the supervisor's phase. */
    static Phase open(String name) throws IOException {
        return in(SharedMemory.open(SharedMemory.Kind.MEMFD, name));
    }

    /** Creates a phase that no supervisor reads. */
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

    // Callers set the phase before the system call that it announces. With release order, all earlier stores are
    // visible when the phase is.
    void set(int phase) {
        WORD.setRelease(segment, 0L, phase);
    }
}
