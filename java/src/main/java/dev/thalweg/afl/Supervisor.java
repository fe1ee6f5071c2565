package dev.thalweg.afl;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Owns the fuzzer's pipes, greets it, and keeps a worker running. It takes no part in a run: the worker talks to the
 * fuzzer itself, and the supervisor speaks only for a worker that died.
 *
 * <p>The fork server's protocol is that of AFL++ up to 4.21 (docs of {@code afl-forkserver.c}); later versions still
 * speak it.
 */
final class Supervisor {
    static final int CONTROL = 198;
    static final int STATUS = 199;
    static final String SUPERVISOR = "THALWEG_AFL_SUPERVISOR";
    static final String PHASE = "THALWEG_AFL_PHASE";
    static final String SHARED_INPUT = "THALWEG_AFL_SHARED_INPUT";

    private static final int OPTIONS = 0x80000001;
    private static final int MAP_SIZE = 0x40000000;
    private static final int SHARED_CASE = 0x01000000;
    private static final int SIGKILL = 9;
    /** How long a fuzzer that has its status takes to ask for the next run, at the very most. */
    private static final int NEXT_RUN_MS = 1000;
    /** A worker that never gets as far as a run is not started for ever. */
    private static final int MOST_EARLY_DEATHS = 3;

    private final Descriptor control = new Descriptor(CONTROL);
    private final Descriptor status = new Descriptor(STATUS);
    private final Phase phase = Phase.create();

    Supervisor() throws IOException {}

    /** Whether a fuzzer started us: both pipes are there. */
    static boolean hasFuzzer() {
        return System.getenv("__AFL_SHM_ID") != null
                && new Descriptor(CONTROL).isOpen()
                && new Descriptor(STATUS).isOpen();
    }

    /** Greets the fuzzer and keeps a worker until the fuzzer ends. */
    void serve() throws IOException {
        boolean shared = greet();
        int early = 0;
        while (early < MOST_EARLY_DEATHS) {
            phase.set(Phase.IDLE);
            Process worker = start(shared);
            int exit = waitFor(worker);
            int owed = phase.get();
            if (owed == Phase.IDLE && exit == 0) {
                return;
            }
            early = owed == Phase.IDLE ? early + 1 : 0;
            if (!speakFor(owed, exit)) {
                return;
            }
        }
        throw new IOException("the worker ended " + early + " times before it ran anything; run it without the fuzzer");
    }

    /** Tells the fuzzer what we can do; whether test cases come by shared memory. */
    private boolean greet() throws IOException {
        boolean offered = System.getenv("__AFL_SHM_FUZZ_ID") != null;
        int hello = OPTIONS | MAP_SIZE | (Coverage.size() - 1) << 1 | (offered ? SHARED_CASE : 0);
        if (!status.write(hello)) {
            throw new IOException("it does not read descriptor " + STATUS);
        }
        if (!offered) {
            return false;
        }
        Integer answer = control.read();
        if (answer == null) {
            throw new IOException("it closed descriptor " + CONTROL + " instead of answering the greeting");
        }
        return (answer & SHARED_CASE) != 0;
    }

    private Process start(boolean shared) throws IOException {
        var builder = new ProcessBuilder(ownCommand()).inheritIO();
        builder.environment().put(SUPERVISOR, Long.toString(ProcessHandle.current().pid()));
        builder.environment().put(PHASE, phase.name());
        builder.environment().put(SHARED_INPUT, Boolean.toString(shared));
        return builder.start();
    }

    /** The command line of this JVM, as the kernel has it: flags, agents and class path among it. */
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
                // Nobody here has a use for an interruption; the fuzzer ends us by its own means.
            }
        }
    }

    /** Says what a dead worker still owed; false if the fuzzer is gone. */
    private boolean speakFor(int owed, int exit) {
        return switch (owed) {
            case Phase.OWES_PID -> sayPid() && status.write(statusOf(exit));
            case Phase.OWES_STATUS -> status.write(statusOf(exit));
            // If the fuzzer has the status, it asks for the next run; if not, it waits for it.
            case Phase.SAYS_STATUS -> control.isReadableWithin(NEXT_RUN_MS) || status.write(statusOf(exit));
            default -> true;
        };
    }

    // Ours, for want of a living one: the status follows at once, so that nobody is killed by it.
    private boolean sayPid() {
        return status.write((int) ProcessHandle.current().pid());
    }

    /** The wait status (wait(2)) of what Process tells: 128 + N for a process that signal N ended. */
    private static int statusOf(int exit) {
        return exit > 128 && exit <= 128 + 64 ? exit - 128 : exit == 0 ? SIGKILL : exit << 8;
    }
}
