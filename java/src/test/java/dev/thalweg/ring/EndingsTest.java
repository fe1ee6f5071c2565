package dev.thalweg.ring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A JVM that uses a ring after its main thread has ended, in a shutdown hook, after SIGTERM or an interrupt. */
class EndingsTest {
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    @TempDir
    Path folder;

    @ParameterizedTest
    @ValueSource(strings = {"thread", "hook", "stay"})
    void whatRunsAfterTheMainThreadSendsTheLastMessage(String way) throws IOException, InterruptedException {
        Path path = folder.resolve("ring");
        try (var listener = Listener.bind(path)) {
            var program = new ProcessBuilder(List.of(
                            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                            "--enable-native-access=ALL-UNNAMED",
                            "-classpath",
                            System.getProperty("java.class.path"),
                            Endings.class.getName(),
                            way,
                            path.toString()))
                    .inheritIO()
                    .start();
            try (var consumer = Consumer.accept(listener, Options.USUAL, PATIENCE)) {
                assertEquals(1, first(consumer));
                if (way.equals("stay")) {
                    // Sends SIGTERM, after which the JVM runs its shutdown hooks.
                    program.destroy();
                }
                assertEquals(2, first(consumer));
                var closed = assertThrows(RingException.Closed.class, () -> consumer.receive(PATIENCE));
                assertEquals(2, closed.delivered());
                assertTrue(program.waitFor(120, TimeUnit.SECONDS));
            } finally {
                program.destroyForcibly();
            }
        }
    }

    private static byte first(Consumer consumer) throws IOException {
        try (var sample = consumer.receive(PATIENCE)) {
            return sample.segment().get(ValueLayout.JAVA_BYTE, 0);
        }
    }

    @Test
    void anInterruptEndsNoWaitAndStaysSet() throws Exception {
        try (var ring = Pair.of(Options.USUAL)) {
            var interrupted = new CompletableFuture<Boolean>();
            var waiter = Thread.ofPlatform().start(() -> {
                try {
                    ring.consumer().receive(PATIENCE).close();
                    interrupted.complete(Thread.currentThread().isInterrupted());
                } catch (IOException failure) {
                    interrupted.completeExceptionally(failure);
                }
            });
            for (int turn = 0; turn < 10; turn++) {
                waiter.interrupt();
                Thread.sleep(10);
            }
            assertFalse(interrupted.isDone());
            ring.producer().send(new byte[] {1});
            assertTrue(interrupted.get());
            waiter.join();
        }
    }
}
