package org.example.fuzzed;

import java.nio.charset.StandardCharsets;
import org.json.JSONException;
import org.json.JSONTokener;

import dev.thalweg.afl.AflTarget;

/** A JSON parser from Maven Central, as a user would fuzz it. */
public final class Json {
    private Json() {}

    /** Runs the fuzz target. */
    public static void main(String[] arguments) {
        AflTarget.run(
                arguments,
                bytes -> new JSONTokener(new String(bytes, StandardCharsets.UTF_8)).nextValue(),
                AflTarget.Options.USUAL.expecting(JSONException.class));
    }
}
