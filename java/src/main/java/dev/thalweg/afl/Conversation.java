package dev.thalweg.afl;

import java.io.IOException;

/**
 * The dialogue of a worker with the fuzzer. The phase is recorded for the supervisor before each message.
 *
 * <p>The fork server's protocol is that of AFL++ up to 4.21 (see {@code afl-forkserver.c}); later versions still
 * support it.
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

    /** Sends the capabilities of this target to the fuzzer, and records if test cases arrive by shared memory. */
    void greet() throws IOException {
        boolean offered = System.getenv("__AFL_SHM_FUZZ_ID") != null;
        int hello = OPTIONS | MAP_SIZE | (Coverage.size() - 1) << 1 | (offered ? SHARED_CASE : 0);
        phase.set(Phase.GREETS);
        if (!status.write(hello)) {
            throw new IOException("the fuzzer does not read descriptor " + Supervisor.STATUS);
        }
        if (offered) {
            Integer answer = control.read();
            if (answer == null) {
                throw new IOException(
                        "the fuzzer closed descriptor " + Supervisor.CONTROL + " instead of answering the greeting");
            }
            phase.setSharesInput((answer & SHARED_CASE) != 0);
        }
        phase.set(Phase.IDLE);
    }

    /** Waits until the fuzzer requests a run, and sends it the process id; false if the fuzzer is gone. */
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

    /** Sends the fuzzer the status of the run; false if the fuzzer is gone. */
    boolean says(int result) {
        phase.set(Phase.SAYS_STATUS);
        if (!status.write(result)) {
            return false;
        }
        phase.set(Phase.IDLE);
        return true;
    }
}
