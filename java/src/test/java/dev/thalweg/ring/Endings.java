package dev.thalweg.ring;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;

/** A producer in a process that ends in a given way: {@code Endings thread|hook|stay PATH}. */
final class Endings {
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    public static void main(String[] told) throws Exception {
        var producer = connect(Path.of(told[1]));
        producer.send(new byte[] {1});
        if (told[0].equals("thread")) {
            // The main thread returns, but the JVM waits for this thread, which is not a daemon.
            Thread.ofPlatform().start(() -> finish(producer));
            return;
        }
        Runtime.getRuntime().addShutdownHook(Thread.ofPlatform().unstarted(() -> finish(producer)));
        if (told[0].equals("stay")) {
            Thread.sleep(PATIENCE);
        }
    }

    /** On a busy machine, the listener may disconnect a process that is too slow, which then connects again. */
    private static Producer connect(Path path) throws IOException {
        while (true) {
            try {
                return Producer.connect(path, Options.USUAL, PATIENCE);
            } catch (RingException.Closed tooSlow) {
                Thread.onSpinWait();
            }
        }
    }

    private static void finish(Producer producer) {
        try (producer) {
            Thread.sleep(100);
            producer.send(new byte[] {2}, PATIENCE);
        } catch (Exception failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(3);
        }
    }
}
