package dev.thalweg.afl;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * Owns the fuzzer's pipes, and keeps a worker running. The worker talks to the fuzzer itself; the supervisor takes over
 * only for a worker that died.
 */
final class Supervisor {
    static final int CONTROL = 198;
    static final int STATUS = 199;
    static final String SUPERVISOR = "THALWEG_AFL_SUPERVISOR";
    static final String PHASE = "THALWEG_AFL_PHASE";

    /** Signals that end a JVM without its shutdown hooks: ILL, ABRT, BUS, FPE, KILL, SEGV, SYS. */
    private static final Set<Integer> DEADLY = Set.of(4, 6, 7, 8, 9, 11, 31);

    /** Maximum time that a fuzzer takes to request the next run after it has received the status. */
    private static final int NEXT_RUN_MS = 1000;
    /** The supervisor gives up after this many consecutive workers died while no run was in progress. */
    private static final int MOST_EARLY_DEATHS = 3;

    private final Descriptor control = new Descriptor(CONTROL);
    private final Descriptor status = new Descriptor(STATUS);
    private final Phase phase = Phase.create();

    Supervisor() throws IOException {}

    /** Returns true if a fuzzer started this process: both pipes are open. */
    static boolean hasFuzzer() {
        return System.getenv("__AFL_SHM_ID") != null
                && Descriptor.isOpen(CONTROL)
                && Descriptor.isOpen(STATUS);
    }

    /** Starts workers, one after the other, until the fuzzer ends. */
    void serve() throws IOException {
        int early = 0;
        while (early < MOST_EARLY_DEATHS) {
            int exit = waitFor(start());
            int owed = phase.get();
            if (owed == Phase.IDLE && exit == 0 && !phase.exits()) {
                return;
            }
            if (owed == Phase.GREETS) {
                throw new IOException("the worker ended during the greeting of the fuzzer");
            }
            early = owed == Phase.STARTS || owed == Phase.IDLE ? early + 1 : 0;
            if (!speakFor(owed, exit)) {
                return;
            }
            if (owed != Phase.STARTS) {
                phase.set(Phase.IDLE);
            }
        }
        throw new IOException("the worker ended " + early + " times before its first run; run the target without the fuzzer");
    }

    private Process start() throws IOException {
        phase.setExits(false);
        var builder = new ProcessBuilder(ownCommand()).inheritIO();
        builder.environment().put(SUPERVISOR, Long.toString(ProcessHandle.current().pid()));
        builder.environment().put(PHASE, phase.name());
        return builder.start();
    }

    /** Returns the command line of this JVM from the kernel, including flags, agents and class path. */
    private static List<String> ownCommand() throws IOException {
        var command = new ArrayList<String>();
        String line = new String(Files.readAllBytes(Path.of("/proc/self/cmdline")), StandardCharsets.UTF_8);
        for (String word : line.substring(0, line.length() - 1).split("\0", -1)) {
            command.add(word);
        }
        command.set(0, Path.of("/proc/self/exe").toRealPath().toString());
        return command;
    }

    private static int waitFor(Process worker) {
        while (true) {
            try {
                return worker.waitFor();
            } catch (InterruptedException again) {
                // Waits again, because the fuzzer ends this process by a signal and not by an interrupt.
            }
        }
    }

    /** Sends the missing messages of a dead worker; returns false if the fuzzer is gone. */
    private boolean speakFor(int owed, int exit) {
        return switch (owed) {
            case Phase.OWES_PID -> sayPid() && status.write(waitStatus(exit));
            case Phase.OWES_STATUS -> status.write(waitStatus(exit));
            // If the fuzzer has received the status, it requests the next run; otherwise it waits for the status.
            case Phase.SAYS_STATUS -> control.isReadableWithin(NEXT_RUN_MS) || status.write(waitStatus(exit));
            default -> true;
        };
    }

    // Sends the supervisor's process id, because the worker is dead. The status follows at once, so the fuzzer sees no
    // time-out and does not kill this process.
    private boolean sayPid() {
        return status.write((int) ProcessHandle.current().pid());
    }

    /**
     * Returns the worker's wait status (wait(2)). {@link Process} reports 128 + N both for death by signal N and for an
     * exit with that value. AFL++ does not treat an exit as a crash, unless AFL_CRASH_EXITCODE names its value.
     */
    private int waitStatus(int exit) {
        return !phase.exits() && DEADLY.contains(exit - 128) ? exit - 128 : exit << 8;
    }
}
