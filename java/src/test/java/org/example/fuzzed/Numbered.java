package org.example.fuzzed;

import dev.thalweg.afl.AflTarget;
import dev.thalweg.afl.Coverage;

/** A target whose static state tells how often it ran: the one counter that a run leaves is that of its number. */
public final class Numbered {
    private static int runs;

    private Numbered() {}

    /** The program; {@code numbered.stillborn} is the variable that only workers have, in which it ends at once. */
    public static void main(String[] arguments) {
        String variable = System.getProperty("numbered.stillborn");
        if (variable != null && System.getenv(variable) != null) {
            System.exit(3);
        }
        AflTarget.run(arguments, bytes -> Coverage.hit(++runs));
    }
}
