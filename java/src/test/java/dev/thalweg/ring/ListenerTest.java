package dev.thalweg.ring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Several listeners that find the socket file of a killed process at once. No other test runs at the same time, because a
 * process that it starts could keep the closed listener alive for a moment.
 */
@Isolated
class ListenerTest {
    private static final int RACERS = 4;

    @TempDir
    Path folder;

    @Test
    void ofManyThatFindAStaleSocketOneListensAndIsFound() throws Exception {
        Path path = folder.resolve("socket");
        try (var racers = Executors.newFixedThreadPool(RACERS)) {
            for (int round = 0; round < 100; round++) {
                Libc.CLOSE.attempt(Sockets.listen(path));
                var start = new CyclicBarrier(RACERS);
                Callable<Optional<Listener>> racer = () -> {
                    start.await();
                    return bound(path);
                };
                var bound = new ArrayList<Listener>();
                for (Future<Optional<Listener>> racing : racers.invokeAll(List.of(racer, racer, racer, racer))) {
                    racing.get().ifPresent(bound::add);
                }
                assertEquals(1, bound.size());
                Link.connect(path, Deadline.NEVER).close();
                try (var files = Files.list(folder)) {
                    assertEquals(1, files.count());
                }
                bound.getFirst().close();
            }
        }
    }

    private static Optional<Listener> bound(Path path) throws IOException {
        try {
            return Optional.of(Listener.bind(path));
        } catch (SystemCallException failure) {
            assertEquals(Sockets.EADDRINUSE, failure.errno());
            return Optional.empty();
        }
    }
}
