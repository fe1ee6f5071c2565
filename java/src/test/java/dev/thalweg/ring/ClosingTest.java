package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A thread closes a producer while another thread is inside a call of the producer. */
class ClosingTest {
    private static final Options SMALL = Options.USUAL.withCapacity(8192);
    private static final Duration SOON = Duration.ofMillis(20);
    private static final boolean FUTEX = Futex.allowed;

    @AfterEach
    void allowAgain() {
        Futex.allowed = FUTEX;
    }

    private static Options options(boolean block, boolean futex) {
        Futex.allowed = futex && FUTEX;
        return block ? SMALL.withWait(Wait.BLOCK) : SMALL;
    }

    @ParameterizedTest
    @CsvSource({"false,true", "true,true", "true,false"})
    void closingEndsAWaitForRoom(boolean block, boolean futex) throws Exception {
        try (var ring = Pair.of(options(block, futex))) {
            byte[] large = new byte[(int) ring.producer().largest()];
            ring.producer().send(large);
            var waiting = CompletableFuture.supplyAsync(() -> assertThrows(
                    IllegalStateException.class, () -> ring.producer().send(large)));
            Thread.sleep(30);
            assertFalse(waiting.isDone());
            ring.producer().close();
            waiting.get(60, TimeUnit.SECONDS);
            ring.consumer().receive().close();
            assertThrows(RingException.Closed.class, () -> ring.consumer().receive());
        }
    }

    /** The thread of this test is inside a call of the producer while another thread closes the producer. */
    @ParameterizedTest
    @CsvSource({"false,true", "true,false"})
    void closingWaitsForTheMessageOfAnotherThread(boolean block, boolean futex) throws Exception {
        try (var ring = Pair.of(options(block, futex))) {
            End producing = ring.producing();
            producing.enter();
            var closing = CompletableFuture.runAsync(ring.producer()::close);
            while (!producing.isClosing()) {
                Thread.onSpinWait();
            }
            for (int turn = 0; turn < 5; turn++) {
                assertThrows(RingException.TimedOut.class, () -> ring.consumer().receive(SOON));
            }
            assertFalse(closing.isDone());
            producing.own.bytes.set(JAVA_LONG, producing.own.at(0), Frame.firstWord(5, false));
            producing.publish(Frame.occupied(5));
            producing.leave();
            closing.get();
            try (var sample = ring.consumer().receive()) {
                assertEquals(5, sample.length());
            }
            assertThrows(RingException.Closed.class, () -> ring.consumer().receive());
        }
    }

    @Test
    void aCommitThatReturnsIsDeliveredAlthoughAnotherThreadCloses() throws Exception {
        // Checksums make a commit long, so that it often is in progress when the producer is closed.
        Options options = SMALL.withCapacity(1 << 20).withChecksums();
        try (var others = Executors.newFixedThreadPool(2)) {
            for (int turn = 0; turn < 200; turn++) {
                try (var ring = Pair.of(options)) {
                    var first = new CountDownLatch(1);
                    var committing = others.submit(() -> committedUntilClosed(ring.producer(), first));
                    var receiving = others.submit(() -> receivedUntilClosed(ring.consumer()));
                    first.await();
                    ring.producer().close();
                    assertEquals(committing.get(), receiving.get(), "turn " + turn);
                }
            }
        }
    }

    private static long committedUntilClosed(Producer producer, CountDownLatch first) throws IOException {
        for (long committed = 0; ; committed++) {
            try (var loan = producer.loan(500_000)) {
                loan.commit();
            } catch (IllegalStateException closed) {
                return committed;
            }
            first.countDown();
        }
    }

    private static long receivedUntilClosed(Consumer consumer) throws IOException {
        while (true) {
            try {
                consumer.receive().close();
            } catch (RingException.Closed closed) {
                return consumer.received();
            }
        }
    }
}
