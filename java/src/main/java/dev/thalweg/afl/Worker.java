package dev.thalweg.afl;

import java.io.FileInputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

import dev.thalweg.SharedMemory;
import dev.thalweg.internal.Libc;

/** Runs the input whenever the fuzzer requests it, and talks to the fuzzer directly. */
final class Worker {
    private static final int SIGABRT = 6;
    private static final int PR_SET_PDEATHSIG = 1;
    private static final long SIGKILL = 9;
    /**
     * Number of warm-up runs. It exceeds the thresholds of the JVM's second compiler (Tier4InvocationThreshold,
     * Tier4CompileThreshold).
     */
    private static final int WARM_TURNS = 20_000;
    private static final int WARM_CASE = 64;

    private final Run run;
    private final Path file;
    private final int pid = (int) ProcessHandle.current().pid();

    Worker(AflTarget.Input input, AflTarget.Options options, Path file) {
        this.run = new Run(input, options);
        this.file = file;
    }

    /** Returns true if a supervisor started this process. */
    static boolean isOne() {
        return System.getenv(Supervisor.SUPERVISOR) != null;
    }

    /** Runs test cases until the fuzzer closes its pipe. */
    void serve() throws IOException {
        long supervisor = Long.parseLong(System.getenv(Supervisor.SUPERVISOR));
        // Killing the supervisor also kills this process, even during a run.
        Libc.PRCTL.on("the supervisor's death", PR_SET_PDEATHSIG, SIGKILL);
        if (ProcessHandle.current().parent().map(ProcessHandle::pid).orElse(0L) != supervisor) {
            return;
        }
        var control = Descriptor.ofProcess(supervisor, Supervisor.CONTROL, true);
        var status = Descriptor.ofProcess(supervisor, Supervisor.STATUS, false);
        var phase = Phase.open(System.getenv(Supervisor.PHASE));
        // The hook distinguishes System.exit(137) from a death by SIGKILL. Both have the exit value 137, but only the
        // exit runs hooks.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> phase.setExits(true)));
        var talk = new Conversation(control, status, phase);
        if (phase.get() == Phase.STARTS) {
            warmUp();
            talk.greet();
        }
        var cases = cases(phase.sharesInput());
        while (talk.isAskedToRun(pid)) {
            int result = runOn(cases.next());
            if (!talk.says(result)) {
                break;
            }
        }
        phase.set(Phase.IDLE);
        // Threads that the input started must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    /**
     * Repeats the code around a run until the JVM has compiled this code. Does not run the input, because the state of
     * the input must not change. Without the warm-up, the fuzzer would attribute the cost of the first runs to the
     * target. A replacement worker skips the warm-up, because the fuzzer waits for its first run.
     */
    private void warmUp() throws IOException {
        var nobody = new Conversation(
                Descriptor.open("/dev/zero", true), Descriptor.open("/dev/null", false), Phase.unseen());
        var region = Arena.global().allocate(Integer.BYTES + WARM_CASE);
        region.set(ValueLayout.JAVA_INT, 0, WARM_CASE);
        for (int turn = 0; turn < WARM_TURNS && nobody.isAskedToRun(pid); turn++) {
            shared(region);
            nobody.says(0);
        }
        Coverage.warmUp(WARM_TURNS);
    }

    private int runOn(byte[] bytes) {
        Coverage.begin();
        return run.isCrash(run.on(bytes)) ? SIGABRT : 0;
    }

    /** The source of test cases. */
    private interface Cases {
        byte[] next() throws IOException;
    }

    private Cases cases(boolean shared) throws IOException {
        if (shared) {
            var memory = Coverage.fuzzersMemory(System.getenv("__AFL_SHM_FUZZ_ID"));
            var region = memory.globalSegment();
            return () -> shared(region);
        }
        if (file != null) {
            return () -> Files.readAllBytes(file);
        }
        // The fuzzer writes each test case into one open file and rewinds it.
        FileChannel standardInput = new FileInputStream(java.io.FileDescriptor.in).getChannel();
        return () -> whole(standardInput);
    }

    /** Returns a test case from shared memory: a length of four bytes, then the bytes. */
    private static byte[] shared(MemorySegment region) {
        int told = region.get(ValueLayout.JAVA_INT, 0);
        long length = Math.clamp(told, 0, region.byteSize() - Integer.BYTES);
        return region.asSlice(Integer.BYTES, length).toArray(ValueLayout.JAVA_BYTE);
    }

    private static byte[] whole(FileChannel file) throws IOException {
        file.position(0);
        var bytes = java.nio.ByteBuffer.allocate((int) file.size());
        while (bytes.hasRemaining() && file.read(bytes) >= 0) {
            // Repeats until the buffer is full or the file ends.
        }
        return java.util.Arrays.copyOf(bytes.array(), bytes.position());
    }
}
