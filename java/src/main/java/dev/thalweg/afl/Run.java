package dev.thalweg.afl;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;

/** Runs an input and collects its exceptions, including uncaught ones in threads that it started. */
final class Run {
    private final AflTarget.Input input;
    private final Predicate<Throwable> isCrash;
    private final AtomicReference<Throwable> uncaught = new AtomicReference<>();

    /** Installs the default handler of uncaught exceptions. */
    Run(AflTarget.Input input, AflTarget.Options options) {
        this.input = input;
        this.isCrash = options.isCrash();
        Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> {
            if (isCrash.test(thrown)) {
                uncaught.compareAndSet(null, thrown);
            }
        });
    }

    /** Runs the input. Returns the exception of a crash, or else an expected exception, or else null. */
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
