package dev.thalweg.afl;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Predicate;

import dev.thalweg.internal.Libc;

/**
 * A program that an unmodified AFL++ fuzzes: a persistent fork-server target in pure Java.
 *
 * <pre>{@code
 *     public static void main(String[] arguments) {
 *         AflTarget.run(arguments, input -> MyParser.parse(input), ParseException.class);
 *     }
 * }</pre>
 *
 * <p>Under {@code afl-fuzz}, {@code afl-showmap}, {@code afl-cmin} or {@code afl-tmin} the input runs once for each
 * test case of the fuzzer. An exception that the input throws is a crash, unless the {@link Options} expect it. A run
 * that exceeds the fuzzer's time limit is a hang. This process keeps the fuzzer's pipes, and starts a second JVM with
 * the same command line, which runs the input. If the fuzzer kills the second JVM because of a hang, this process
 * starts another. Without a fuzzer, the input runs once, on the file that the last argument names or on standard input.
 * Then the program prints the verdict that a fuzzer would reach.
 *
 * <p>An uncaught exception in a thread that the input started is also a crash if it occurs during a run: wait for those
 * threads. An input that ends the JVM (System.exit, Runtime.halt) is not a crash, whatever the exit value, unless
 * AFL_CRASH_EXITCODE names it. Exception: Runtime.halt(128 + N) counts as death by signal N, if N is ILL, ABRT, BUS,
 * FPE, KILL, SEGV or SYS.
 *
 * <p>Set {@code AFL_SKIP_BIN_CHECK=1} for the fuzzer, because its program is {@code java}.
 */
public final class AflTarget {
    /** The code to fuzz. */
    @FunctionalInterface
    public interface Input {
        /**
         * Runs the code once. Static state persists between runs: a target whose state grows should reset it.
         *
         * @param bytes the test case, 0 bytes or more; the array belongs to this run
         * @throws Throwable a crash according to the options, or an exception that is expected for invalid input
         */
        void run(byte[] bytes) throws Throwable;
    }

    /**
     * The definition of a crash.
     *
     * @param isCrash selects the exceptions of the input that are crashes
     */
    public record Options(Predicate<Throwable> isCrash) {
        /** Every exception is a crash, including stack overflows and lack of memory. */
        public static final Options USUAL = new Options(thrown -> true);

        /**
         * Returns a copy that expects exceptions of these classes.
         *
         * @param expected exception classes that a parser throws for invalid input
         * @return the options
         */
        @SafeVarargs
        public final Options expecting(Class<? extends Throwable>... expected) {
            Class<? extends Throwable>[] classes = expected.clone();
            return new Options(thrown -> {
                for (var expectedClass : classes) {
                    if (expectedClass.isInstance(thrown)) {
                        return false;
                    }
                }
                return isCrash.test(thrown);
            });
        }
    }

    private static final int SIGABRT = 6;

    private AflTarget() {}

    /**
     * Runs the input as requested by the fuzzer until the fuzzer ends, or once without a fuzzer.
     *
     * @param arguments the arguments of {@code main}; the last one is the file of the test case ({@code @@}), if any
     * @param input     the code to fuzz
     */
    public static void run(String[] arguments, Input input) {
        run(arguments, input, Options.USUAL);
    }

    /**
     * Calls {@link #run(String[], Input, Options)} with {@link Options#USUAL} that {@linkplain Options#expecting
     * expect} some exceptions.
     *
     * @param arguments the arguments of {@code main}
     * @param input     the code to fuzz
     * @param expected  exception classes that a parser throws for invalid input, which are not crashes
     */
    @SafeVarargs
    public static void run(String[] arguments, Input input, Class<? extends Throwable>... expected) {
        run(arguments, input, Options.USUAL.expecting(expected));
    }

    /**
     * Runs the input as requested by the fuzzer until the fuzzer ends, or once without a fuzzer.
     *
     * @param arguments the arguments of {@code main}; the last one is the file of the test case ({@code @@}), if any
     * @param input     the code to fuzz
     * @param options   definition of a crash
     */
    public static void run(String[] arguments, Input input, Options options) {
        Path file = arguments.length == 0 ? null : Path.of(arguments[arguments.length - 1]);
        try {
            if (Worker.isOne()) {
                new Worker(input, options, file).serve();
            } else if (Supervisor.hasFuzzer()) {
                new Supervisor().serve();
            } else {
                once(file, input, options);
            }
        } catch (IOException failure) {
            System.err.println("thalweg: the target cannot work with the fuzzer: " + failure.getMessage());
            Runtime.getRuntime().halt(2);
        }
    }

    /** Runs the input without a fuzzer. Prints verdict and exception, and exits with 134 (SIGABRT) for a crash. */
    private static void once(Path file, Input input, Options options) throws IOException {
        byte[] bytes = file == null ? System.in.readAllBytes() : Files.readAllBytes(file);
        if (isWatched()) {
            Libc.ABORT.link();
        }
        var run = new Run(input, options);
        var exit = new Thread(() -> System.err.println("no crash: the input ended the JVM (System.exit)"));
        Runtime.getRuntime().addShutdownHook(exit);
        Coverage.begin();
        Throwable thrown = run.on(bytes);
        try {
            Runtime.getRuntime().removeShutdownHook(exit);
        } catch (IllegalStateException exiting) {
            // A thread of the input has called exit.
            return;
        }
        boolean crash = run.isCrash(thrown);
        System.err.println(crash ? "crash:" : thrown == null ? "no crash" : "expected:");
        if (thrown != null) {
            thrown.printStackTrace();
        }
        if (crash) {
            end();
        }
    }

    /** Returns true if a tool of the fuzzer observes the map and the exit status. */
    private static boolean isWatched() {
        return System.getenv("__AFL_SHM_ID") != null;
    }

    /** Ends this process with a crash. A tool that checks only the wait status requires a signal. */
    private static void end() {
        if (isWatched()) {
            // Calls abort(3), because the kernel may deliver a signal of kill(2) to another thread. Then the exit below
            // could run before that thread wakes.
            Libc.ABORT.attempt();
        }
        // A shell reports the signal by this exit value. Other exit values belong to the input.
        Runtime.getRuntime().halt(128 + SIGABRT);
    }
}
