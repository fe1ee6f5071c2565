package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import dev.thalweg.SystemCallException;
import dev.thalweg.internal.Libc;

class RingTest {
    private static final Options SMALL = Options.USUAL.withCapacity(8192);
    private static final Duration SOON = Duration.ofMillis(20);
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final boolean FUTEX = Futex.allowed;

    @TempDir
    Path folder;

    @AfterEach
    void allowAgain() {
        Futex.allowed = FUTEX;
    }

    private static Wait byName(String name) {
        return switch (name) {
            case "spin" -> Wait.SPIN;
            case "block" -> Wait.BLOCK;
            default -> Wait.HYBRID;
        };
    }

    private static byte[] bytes(Sample sample) {
        return sample.segment().toArray(JAVA_BYTE);
    }

    @Test
    void everySizeUpToTheLargestArrivesInPlace() throws IOException {
        for (Options options : new Options[] {
            SMALL, SMALL.untrusted(), SMALL.withChecksums(), SMALL.withChecksums().untrusted()
        }) {
            try (var ring = Pair.of(options)) {
                int largest = (int) ring.producer().largest();
                assertEquals(8192 - 32, largest);
                int[] sizes = {0, 1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, largest - 1, largest};
                for (int turn = 0; turn < 60; turn++) {
                    byte[] message = new byte[sizes[turn % sizes.length]];
                    Arrays.fill(message, (byte) turn);
                    try (var loan = ring.producer().loan(message.length)) {
                        assertEquals(0, loan.segment().address() % 32);
                        loan.segment().copyFrom(MemorySegment.ofArray(message));
                        loan.commit();
                    }
                    try (var sample = ring.consumer().receive()) {
                        assertArrayEquals(message, bytes(sample));
                    }
                }
                assertEquals(60, ring.producer().sent());
                assertEquals(60, ring.consumer().received());
                assertEquals(ring.producer().epoch(), ring.consumer().epoch());
            }
        }
    }

    @Test
    void whatDoesNotFitIsToldAndNothingIsLost() throws IOException {
        try (var ring = Pair.of(SMALL)) {
            var large = assertThrows(RingException.TooLarge.class, () -> ring.producer().send(new byte[8192]));
            assertEquals(8160, large.most());
            assertNull(ring.consumer().tryReceive());
            assertThrows(RingException.TimedOut.class, () -> ring.consumer().receive(SOON));
            int sent = 0;
            while (ring.producer().trySend(new byte[1000])) {
                sent++;
            }
            assertEquals(8192 / 1088, sent);
            assertNull(ring.producer().tryLoan(1000));
            assertThrows(RingException.TimedOut.class, () -> ring.producer().send(new byte[1000], SOON));
            ring.consumer().tryReceive().close();
            assertTrue(ring.producer().trySend(new byte[1000]));
            assertThrows(RingException.TimedOut.class, () -> ring.producer().drain(SOON));
            for (int left = sent; left > 0; left--) {
                ring.consumer().receive().close();
            }
            ring.producer().drain(LONG);
        }
        assertThrows(RingException.TooLarge.class, () -> Geometry.of(SMALL.withCapacity(Long.MAX_VALUE), 1));
    }

    /** Each thread sends its number, so that a message that two threads wrote would contain both numbers. */
    @Test
    void severalThreadsAtOneEndAreToldAndTheRingStaysWhole() throws Exception {
        try (var ring = Pair.of(SMALL)) {
            var waits = new CompletableFuture<Throwable>();
            var waiter = Thread.ofPlatform().start(() -> {
                while (!waits.isDone()) {
                    try {
                        ring.consumer().receive(LONG).close();
                        waits.complete(null);
                    } catch (IllegalStateException refused) {
                        // The main thread of the test is using this end at this moment.
                    } catch (Exception failure) {
                        waits.complete(failure);
                    }
                }
            });
            while (!waits.isDone() && ring.consuming().tryEnter()) {
                ring.consuming().leave();
                Thread.onSpinWait();
            }
            for (Executable call : List.<Executable>of(
                    ring.consumer()::tryReceive,
                    () -> ring.consumer().receive(SOON),
                    () -> ring.consumer().receiveAll(SOON))) {
                var refused = assertThrows(IllegalStateException.class, call);
                assertTrue(refused.getMessage().contains("another thread"), refused.getMessage());
            }
            ring.producer().send(new byte[1]);
            assertNull(waits.get());
            waiter.join();

            var senders = Executors.newFixedThreadPool(4);
            for (int sender = 0; sender < 4; sender++) {
                byte name = (byte) sender;
                senders.submit(() -> {
                    byte[] message = new byte[100];
                    Arrays.fill(message, name);
                    for (int number = 0; number < 20_000; number++) {
                        try {
                            ring.producer().send(message, SOON);
                        } catch (IllegalStateException | RingException.TimedOut refused) {
                            // Another thread is inside of `send`, or has just filled the ring.
                        }
                    }
                    return null;
                });
            }
            senders.shutdown();
            long received = 0;
            while (!senders.isTerminated() || received + 1 < ring.producer().sent()) {
                try (var sample = ring.consumer().tryReceive()) {
                    if (sample != null) {
                        byte[] got = bytes(sample);
                        for (byte each : got) {
                            assertEquals(got[0], each);
                        }
                        received++;
                    }
                }
            }
            assertEquals(ring.producer().sent(), ring.consumer().received());
        }
    }

    @Test
    void aClosedLoanNeverWasAndOneIsOpenAtATime() throws IOException {
        try (var ring = Pair.of(SMALL)) {
            var loan = ring.producer().loan(5);
            assertThrows(IllegalStateException.class, () -> ring.producer().loan(5));
            loan.segment().fill((byte) 1);
            loan.close();
            assertThrows(IllegalStateException.class, loan::segment);
            assertThrows(IllegalStateException.class, loan::commit);
            assertNull(ring.consumer().tryReceive());
            ring.producer().send(new byte[] {2});
            var sample = ring.consumer().receive();
            assertThrows(IllegalStateException.class, () -> ring.consumer().receive());
            assertThrows(IllegalArgumentException.class, () -> sample.segment().set(JAVA_BYTE, 0, (byte) 3));
            assertThrows(IndexOutOfBoundsException.class, () -> sample.segment().get(JAVA_BYTE, 1));
            assertEquals(0, ring.consumer().received());
            sample.close();
            sample.close();
            assertEquals(1, ring.consumer().received());
            assertThrows(IllegalStateException.class, sample::segment);
        }
    }

    @Test
    void theKernelKnowsOfEveryEndUntilItIsClosed() throws IOException {
        var rings = new ArrayList<Pair>();
        for (int turn = 0; turn < 5; turn++) {
            rings.add(Pair.of(SMALL));
        }
        // Closes the rings in an arbitrary order. The words of open ends must stay on the robust list.
        for (int at : new int[] {2, 0, 2, 1, 0}) {
            for (Pair ring : rings) {
                for (End end : new End[] {ring.producing(), ring.consuming()}) {
                    int word = (int) Page.INT.getAcquire(end.own.bytes, Page.ALIVE);
                    assertTrue((word & Futex.WAITERS) != 0 && (word & ~Futex.WAITERS) != 0, "alive: " + word);
                }
            }
            rings.remove(at).close();
        }
    }

    @Test
    void leavingIsAGoodbye() throws IOException {
        try (var ring = Pair.of(SMALL)) {
            ring.producer().send(new byte[] {1});
            ring.producer().close();
            ring.producer().close();
            ring.consumer().receive().close();
            var closed = assertThrows(RingException.Closed.class, () -> ring.consumer().receive());
            assertEquals(1, closed.delivered());
        }
        try (var ring = Pair.of(SMALL)) {
            ring.producer().send(new byte[] {1});
            ring.producer().send(new byte[] {2});
            ring.consumer().receive().close();
            ring.consumer().close();
            var closed = assertThrows(RingException.Closed.class, () -> ring.producer().send(new byte[1]));
            assertEquals(1, closed.delivered());
        }
    }

    @Test
    void anEndThatNobodyHasAnyMoreIsClosed() throws Exception {
        Link[] links = Link.pair();
        var lost = CompletableFuture.runAsync(() -> {
            try {
                new Producer(Handshake.offer(links[0], SMALL, () -> Deadline.NEVER)).send(new byte[] {1});
            } catch (IOException failure) {
                throw new AssertionError(failure);
            }
        });
        try (var consumer = new Consumer(Handshake.accept(links[1], SMALL, () -> Deadline.NEVER), SMALL)) {
            lost.get();
            consumer.receive().close();
            for (int turn = 0; turn < 1000; turn++) {
                System.gc();
                try {
                    consumer.receive(SOON);
                } catch (RingException.TimedOut notYet) {
                    continue;
                } catch (RingException.Closed closed) {
                    return;
                }
            }
            throw new AssertionError("never closed");
        }
    }

    @Test
    void afterClosingEverythingThrows() throws IOException {
        var ring = Pair.of(SMALL);
        var loan = ring.producer().loan(8);
        MemorySegment room = loan.segment();
        ring.producer().close();
        assertThrows(IllegalStateException.class, () -> room.set(JAVA_LONG, 0, 1));
        assertThrows(IllegalStateException.class, loan::segment);
        assertThrows(IllegalStateException.class, loan::commit);
        assertThrows(IllegalStateException.class, () -> ring.producer().send(new byte[1]));
        assertThrows(IllegalStateException.class, () -> ring.producer().trySend(new byte[1]));
        assertThrows(IllegalStateException.class, () -> ring.producer().drain(SOON));
        ring.consumer().close();
        assertThrows(IllegalStateException.class, () -> ring.consumer().tryReceive());
        var other = Pair.of(SMALL);
        other.producer().send(new byte[8]);
        var sample = other.consumer().receive();
        MemorySegment message = sample.segment();
        other.close();
        assertThrows(IllegalStateException.class, () -> message.get(JAVA_LONG, 0));
        assertThrows(IllegalStateException.class, sample::segment);
        sample.close();
    }

    @ParameterizedTest
    @CsvSource({"spin,true", "hybrid,true", "block,true", "block,false"})
    void anotherThreadEndsAWaitByClosing(String wait, boolean futex) throws Exception {
        Futex.allowed = futex && FUTEX;
        Options options = SMALL.withWait(byName(wait));
        try (var ring = Pair.of(options)) {
            var waiting = CompletableFuture.supplyAsync(() -> assertThrows(
                    IllegalStateException.class, () -> ring.consumer().receive()));
            Thread.sleep(30);
            assertFalse(waiting.isDone());
            ring.consumer().close();
            assertNotNull(waiting.get(60, TimeUnit.SECONDS));
            assertThrows(RingException.Closed.class, () -> ring.producer().send(new byte[1]));
        }
    }

    @ParameterizedTest
    @CsvSource({"block,true", "hybrid,true", "spin,true", "block,false", "hybrid,false"})
    void aLongSequenceArrivesInOrder(String wait, boolean futex) throws Exception {
        Futex.allowed = futex && FUTEX;
        Options options = SMALL.withCapacity(16384).withWait(byName(wait));
        long messages = 20_000;
        try (var ring = Pair.of(options)) {
            var sending = CompletableFuture.runAsync(() -> {
                try {
                    for (long seq = 0; seq < messages; seq++) {
                        ring.producer().send(Messages.message(seq));
                    }
                    ring.producer().drain(LONG);
                    ring.producer().close();
                } catch (IOException failure) {
                    throw new AssertionError(failure);
                }
            });
            for (long seq = 0; seq < messages; seq++) {
                try (var sample = ring.consumer().receive(LONG)) {
                    assertEquals(-1, sample.segment().mismatch(MemorySegment.ofArray(Messages.message(seq))));
                }
            }
            sending.get();
            assertThrows(RingException.Closed.class, () -> ring.consumer().receive());
        }
    }

    @Test
    void aHostHasOneConsumerAndLeavesNoFile() throws Exception {
        Path path = folder.resolve("ring");
        var hosting = CompletableFuture.supplyAsync(() -> {
            try {
                return Producer.host(path, SMALL, LONG);
            } catch (IOException failure) {
                throw new AssertionError(failure);
            }
        });
        Consumer consumer = null;
        for (int turn = 0; consumer == null && turn < 30_000; turn++) {
            try {
                consumer = Consumer.connect(path, SMALL, LONG);
            } catch (SystemCallException notYet) {
                Thread.sleep(1);
            }
        }
        try (var producer = hosting.get();
                var reader = consumer) {
            producer.send(new byte[] {7});
            assertArrayEquals(new byte[] {7}, bytes(reader.receive()));
            assertEquals(ProcessHandle.current().pid(), reader.peer());
            assertFalse(Files.exists(path));
            assertThrows(SystemCallException.class, () -> Consumer.connect(path, SMALL));
        }
    }

    @Test
    void oneWhoIsSilentDoesNotKeepTheNextOut() throws Exception {
        Path path = folder.resolve("socket");
        try (var listener = Listener.bind(path)) {
            Link silent = Link.connect(path, Deadline.NEVER);
            // On a busy machine, the valid process may be too slow for the time limit. Then it connects again.
            var consuming = CompletableFuture.supplyAsync(() -> {
                for (var until = Deadline.in(LONG); ; ) {
                    try {
                        return Consumer.connect(path, SMALL, LONG);
                    } catch (IOException failure) {
                        if (until.isOver()) {
                            throw new AssertionError(failure);
                        }
                    }
                }
            });
            Listener.Meeting<End> offer = (link, until) -> Handshake.offer(link, SMALL, until);
            try (var producer = new Producer(listener.meet(Deadline.in(LONG), Duration.ofSeconds(2), offer));
                    var consumer = consuming.get()) {
                producer.send(new byte[] {7});
                assertArrayEquals(new byte[] {7}, bytes(consumer.receive()));
            }
            silent.close();
            silent = Link.connect(path, Deadline.NEVER);
            Duration patience = Duration.ofMinutes(10);
            assertThrows(RingException.TimedOut.class, () -> listener.meet(Deadline.in(SOON), patience, offer));
            silent.close();
        }
    }

    @Test
    void callersWhoFailOneAfterTheOtherDoNotOutlastTheDeadline() throws IOException {
        Path path = folder.resolve("socket");
        var loud = new ArrayList<Link>();
        try (var listener = Listener.bind(path)) {
            for (int n = 0; n < 20; n++) {
                Link.connect(path, Deadline.NEVER).close();
                Link noise = Link.connect(path, Deadline.NEVER);
                noise.send(new byte[] {1}, -1, Deadline.NEVER);
                loud.add(noise);
            }
            assertThrows(RingException.TimedOut.class, () -> Producer.host(listener, SMALL, Deadline.NOW));
            // The deadline ended the wait, and other processes still wait in the queue.
            listener.accept(Deadline.NOW).close();
        } finally {
            loud.forEach(Link::close);
        }
    }

    /**
     * Binds again after a listener died. Retries, because a starting process holds copies of its descriptors until
     * exec.
     */
    private static Listener bindAfterDeath(Path path) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (true) {
            try {
                return Listener.bind(path);
            } catch (SystemCallException e) {
                if (e.errno() != Sockets.EADDRINUSE || System.nanoTime() - end > 0) {
                    throw e;
                }
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
            }
        }
    }

    @Test
    void aListenerReplacesADeadOneAndNoLivingOne() throws IOException {
        Path path = folder.resolve("socket");
        int left = Sockets.listen(path);
        var taken = assertThrows(SystemCallException.class, () -> Listener.bind(path));
        assertEquals(Sockets.EADDRINUSE, taken.errno());
        Libc.CLOSE.attempt(left);
        assertTrue(Files.exists(path));
        try (var listener = bindAfterDeath(path);
                var others = Executors.newSingleThreadExecutor()) {
            assertThrows(RingException.TimedOut.class, () -> Producer.accept(listener, SMALL, SOON));
            var made = others.submit(() -> Producer.accept(listener, SMALL, LONG));
            var both = assertThrows(RingException.NotPermitted.class, () -> Producer.connect(path, SMALL, LONG));
            assertTrue(both.getMessage().contains("same role"), both.getMessage());
            try (var consumer = Consumer.connect(path, SMALL, LONG);
                    var producer = made.get()) {
                assertEquals(producer.epoch(), consumer.epoch());
            }
        } catch (InterruptedException | ExecutionException failure) {
            throw new AssertionError(failure);
        }
        assertFalse(Files.exists(path));
        Path file = Files.createFile(folder.resolve("file"));
        assertThrows(IOException.class, () -> Listener.bind(file));
        assertTrue(Files.exists(file));
        assertThrows(IOException.class, () -> Listener.bind(folder.resolve("x".repeat(120))));
    }

    @Test
    void aKilledJvmIsADeath() throws Exception {
        Path path = folder.resolve("ring");
        String java = ProcessHandle.current().info().command().orElseThrow();
        try (var listener = Listener.bind(path)) {
            var child = new ProcessBuilder(
                            java, "-XX:TieredStopAtLevel=1", "--enable-native-access=ALL-UNNAMED",
                            "-cp", "target/classes:target/test-classes",
                            "dev.thalweg.ring.Peer", "produce", "connect", path.toString(), "3", "stay")
                    .inheritIO()
                    .start();
            try (var consumer = Consumer.accept(listener, SMALL.withWait(Wait.BLOCK), LONG)) {
                for (int seq = 0; seq < 3; seq++) {
                    try (var sample = consumer.receive(LONG)) {
                        assertArrayEquals(Messages.message(seq), bytes(sample));
                    }
                }
                child.destroyForcibly();
                var died = assertThrows(RingException.PeerDied.class, () -> consumer.receive(LONG));
                assertEquals(3, died.delivered());
                assertEquals(0, died.partial());
            } finally {
                child.destroyForcibly().waitFor();
            }
        }
    }
}
