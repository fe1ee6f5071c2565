package dev.thalweg;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Assumptions;

/** Skipped tests, counted by {@code make test}. */
public final class Skips {
    private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

    private Skips() {}

    /**
     * Skips the test. Adds a line to the file that {@code THALWEG_SKIPS} names, but only one line for all cases of a
     * test.
     */
    public static void skip(String test, String reason) throws IOException {
        String file = System.getenv("THALWEG_SKIPS");
        if (file != null && TOLD.add(test)) {
            Files.writeString(
                    Path.of(file), test + ": " + reason + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
        Assumptions.abort(reason);
    }
}
