package dev.thalweg.afl;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;

/** One run of the input, and what was thrown in it: by the input itself, or uncaught in a thread that it started. */
final class Run {
    private final AflTarget.Input input;
    private final Predicate<Throwable> isCrash;
    private final AtomicReference<Throwable> uncaught = new AtomicReference<>();

    /** Takes over what is uncaught in threads without a handler of their own. */
    Run(AflTarget.Input input, AflTarget.Options options) {
        this.input = input;
        this.isCrash = options.isCrash();
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> {
            if (isCrash.test(thrown)) {
                uncaught.compareAndSet(null, thrown);
            }
        });
    }

    /** Runs it, and returns the crash or what was expected; null if nothing was thrown. */
    Throwable on(byte[] bytes) {
        uncaught.set(null);
        Throwable own = null;
        try {
            input.run(bytes);
        } catch (Throwable thrown) {
            own = thrown;
        }
        Throwable other = uncaught.getAndSet(null);
        return other == null || isCrash(own) ? own : other;
    }

    boolean isCrash(Throwable thrown) {
        return thrown != null && isCrash.test(thrown);
    }
}
