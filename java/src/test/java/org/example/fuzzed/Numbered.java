package org.example.fuzzed;

import dev.thalweg.afl.AflTarget;
import dev.thalweg.afl.Coverage;

/** A target whose static state counts its runs: each run increments only the counter of its number. */
public final class Numbered {
    private static int runs;

    private Numbered() {}

    /** Runs the target. If {@code numbered.stillborn} names a variable of workers, a worker exits at once. */
    public static void main(String[] arguments) {
        String variable = System.getProperty("numbered.stillborn");
        if (variable != null && System.getenv(variable) != null) {
            System.exit(3);
        }
        AflTarget.run(arguments, bytes -> Coverage.hit(++runs));
    }
}
