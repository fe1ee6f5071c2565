package dev.thalweg.afl;

import java.io.IOException;

/**
 * What a worker says to the fuzzer, and what it hears; the phase is told to the supervisor before each word.
 *
 * <p>The fork server's protocol is that of AFL++ up to 4.21 (docs of {@code afl-forkserver.c}); later versions still
 * speak it.
 */
final class Conversation {
    private static final int OPTIONS = 0x80000001;
    private static final int MAP_SIZE = 0x40000000;
    private static final int SHARED_CASE = 0x01000000;

    private final Descriptor control;
    private final Descriptor status;
    private final Phase phase;

    Conversation(Descriptor control, Descriptor status, Phase phase) {
        this.control = control;
        this.status = status;
        this.phase = phase;
    }

    /** Tells the fuzzer what we can do, and notes whether test cases come by shared memory. */
    void greet() throws IOException {
        boolean offered = System.getenv("__AFL_SHM_FUZZ_ID") != null;
        int hello = OPTIONS | MAP_SIZE | (Coverage.size() - 1) << 1 | (offered ? SHARED_CASE : 0);
        phase.set(Phase.GREETS);
        if (!status.write(hello)) {
            throw new IOException("it does not read descriptor " + Supervisor.STATUS);
        }
        if (offered) {
            Integer answer = control.read();
            if (answer == null) {
                throw new IOException(
                        "it closed descriptor " + Supervisor.CONTROL + " instead of answering the greeting");
            }
            phase.setSharesInput((answer & SHARED_CASE) != 0);
        }
        phase.set(Phase.IDLE);
    }

    /** Waits until the fuzzer asks for a run, and tells it who runs; false if it is gone. */
    boolean isAskedToRun(int pid) {
        if (control.read() == null) {
            return false;
        }
        phase.set(Phase.OWES_PID);
        if (!status.write(pid)) {
            return false;
        }
        phase.set(Phase.OWES_STATUS);
        return true;
    }

    /** Tells the fuzzer how the run ended; false if it is gone. */
    boolean says(int result) {
        phase.set(Phase.SAYS_STATUS);
        if (!status.write(result)) {
            return false;
        }
        phase.set(Phase.IDLE);
        return true;
    }
}
