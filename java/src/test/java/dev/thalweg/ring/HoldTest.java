package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;

class HoldTest {
    private static final Options SMALL = Options.USUAL.withCapacity(8192);
    private static final Options[] KINDS = {
        SMALL, SMALL.untrusted(), SMALL.withChecksums(), SMALL.withChecksums().untrusted()
    };
    private static final Duration SOON = Duration.ofMillis(20);

    private static byte[] message(int number, int length) {
        byte[] bytes = new byte[length];
        Arrays.fill(bytes, (byte) number);
        return bytes;
    }

    private static byte[] bytes(Held held) {
        return held.segment().toArray(JAVA_BYTE);
    }

    /** Sends until the ring is full, and holds everything. */
    private static List<Held> fill(Pair ring) throws IOException {
        var all = new ArrayList<Held>();
        while (ring.producer().trySend(message(all.size(), 1000))) {
            all.add(ring.consumer().receive().hold());
        }
        return all;
    }

    @Test
    void whatIsHeldStaysAndItsRoomIsGivenBackWithTheOldest() throws IOException {
        for (Options options : KINDS) {
            try (var ring = Pair.of(options)) {
                List<Held> all = fill(ring);
                assertEquals(8192 / 1088, all.size());
                assertEquals(all.size(), ring.consumer().held());
                assertEquals(all.size(), ring.consumer().received());
                assertThrows(RingException.TimedOut.class, () -> ring.consumer().receive(SOON));
                for (int at = all.size() - 1; at > 0; at--) {
                    assertArrayEquals(message(at, 1000), bytes(all.get(at)));
                    all.get(at).close();
                    all.get(at).close();
                    assertFalse(ring.producer().trySend(new byte[1000]));
                }
                assertArrayEquals(message(0, 1000), bytes(all.getFirst()));
                all.getFirst().close();
                assertEquals(0, ring.consumer().held());
                ring.producer().drain(Duration.ofSeconds(60));
                assertEquals(all.size(), fill(ring).size());
                assertThrows(IllegalStateException.class, all.getFirst()::segment);
            }
        }
    }

    @Test
    void aSampleIsHeldOnceAndCannotBeWritten() throws IOException {
        try (var ring = Pair.of(SMALL)) {
            ring.producer().send(message(1, 5));
            var sample = ring.consumer().receive();
            var held = sample.hold();
            assertThrows(IllegalStateException.class, sample::hold);
            assertThrows(IllegalStateException.class, sample::segment);
            sample.close();
            assertEquals(5, held.length());
            assertThrows(IllegalArgumentException.class, () -> held.segment().set(JAVA_BYTE, 0, (byte) 3));
            ring.producer().send(message(2, 5));
            var closed = ring.consumer().receive();
            closed.close();
            assertThrows(IllegalStateException.class, closed::hold);
            assertArrayEquals(message(1, 5), bytes(held));
        }
    }

    @Test
    void anyThreadGivesBackWhatAProducerWaitsFor() throws Exception {
        try (var ring = Pair.of(SMALL.withWait(Wait.BLOCK))) {
            List<Held> all = fill(ring);
            var sending = CompletableFuture.runAsync(() -> {
                try {
                    ring.producer().send(message(9, 1000));
                } catch (IOException failure) {
                    throw new AssertionError(failure);
                }
            });
            assertThrows(TimeoutException.class, () -> sending.get(20, TimeUnit.MILLISECONDS));
            // Uses a separate thread, because the common pool may have no thread besides the waiting one.
            var closing = Thread.ofPlatform().start(() -> all.forEach(Held::close));
            sending.get(60, TimeUnit.SECONDS);
            closing.join();
            try (var sample = ring.consumer().receive()) {
                assertArrayEquals(message(9, 1000), sample.segment().toArray(JAVA_BYTE));
            }
        }
    }

    @Test
    void whoHoldsWhatIsWaitedForIsTold() throws IOException, InterruptedException, ExecutionException, TimeoutException {
        try (var ring = Pair.of(SMALL.withWait(Wait.BLOCK))) {
            List<Held> all = fill(ring);
            assertFalse(ring.consumer().holdsUp());
            var sending = CompletableFuture.runAsync(() -> {
                try {
                    ring.producer().send(message(9, 1000));
                } catch (IOException failure) {
                    throw new AssertionError(failure);
                }
            });
            int waits = 0;
            while (!ring.consumer().holdsUp()) {
                assertTrue(++waits < 3000, "the producer waits, and that is never told");
                assertThrows(RingException.TimedOut.class, () -> ring.consumer().receive(SOON));
            }
            all.getFirst().close();
            sending.get(60, TimeUnit.SECONDS);
            assertFalse(ring.consumer().holdsUp());
        }
    }

    @Test
    void afterTheConsumerIsClosedNothingIsReadThatIsNotThere() throws IOException {
        for (Options options : KINDS) {
            var ring = Pair.of(options);
            List<Held> all = fill(ring);
            ring.close();
            if (options == KINDS[0]) {
                assertThrows(IllegalStateException.class, () -> bytes(all.getFirst()));
            } else if (options == KINDS[1]) {
                assertArrayEquals(message(0, 1000), bytes(all.getFirst()));
            }
            all.forEach(Held::close);
        }
    }

    @Test
    void noOrderOfHoldingAndGivingBackLosesOrTearsAMessage() throws IOException {
        var random = new Random(17);
        for (Options options : KINDS) {
            try (var ring = Pair.of(options)) {
                var held = new ArrayList<Held>();
                var due = new ArrayList<Integer>();
                int sent = 0;
                int received = 0;
                for (int turn = 0; turn < 20_000; turn++) {
                    switch (random.nextInt(4)) {
                        case 0 -> sent += ring.producer().trySend(message(sent, sent % 700)) ? 1 : 0;
                        case 1, 2 -> {
                            var sample = ring.consumer().tryReceive();
                            if (sample == null) {
                                continue;
                            }
                            assertArrayEquals(message(received, received % 700), sample.segment().toArray(JAVA_BYTE));
                            if (random.nextBoolean()) {
                                held.add(sample.hold());
                                due.add(received);
                            } else {
                                sample.close();
                            }
                            received++;
                        }
                        default -> {
                            if (!held.isEmpty()) {
                                int at = random.nextInt(held.size());
                                int number = due.remove(at);
                                assertArrayEquals(message(number, number % 700), bytes(held.get(at)));
                                held.remove(at).close();
                            }
                        }
                    }
                    assertEquals(held.size(), ring.consumer().held());
                }
                assertTrue(received > 1000);
                assertEquals(received, ring.consumer().received());
            }
        }
    }
}
