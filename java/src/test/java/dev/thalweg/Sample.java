package dev.thalweg;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** A random part of a test's cases. {@code make test} runs one in {@code share} cases, {@code THALWEG_SAMPLE=1} all. */
public final class Sample {
    private Sample() {}

    /** Returns one in {@code share} cases, at least one. JUnit names each in its report. */
    public static <T> List<T> of(List<T> all, int share) {
        var sample = new ArrayList<>(all);
        Collections.shuffle(sample, new Random());
        int most = Integer.parseInt(System.getenv().getOrDefault("THALWEG_SAMPLE", Integer.toString(share)));
        return sample.subList(0, Math.max(1, all.size() / Math.max(1, most)));
    }
}
