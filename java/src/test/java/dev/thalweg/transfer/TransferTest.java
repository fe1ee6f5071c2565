package dev.thalweg.transfer;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

import dev.thalweg.Skips;
import dev.thalweg.internal.Native;

@Timeout(600)
class TransferTest {
    private static final int EPIPE = 32;
    private static final int[] SIZES = {0, 1, 4095, 65537, 3 << 20};

    /** The two implementations of a transfer. */
    enum Way {
        PLAIN,
        PLANNED;

        /** Skips the test if this is not available. Inside of {@code assertThrows}, the skip would be caught. */
        Transfer.Mover mover() throws IOException {
            if (this == PLAIN) {
                return new Plain();
            }
            if (Native.orNull() == null) {
                Skips.skip("TransferTest by plan", "the native library is not available: tests/setup/java builds it");
            }
            return new Planned(Native.orNull());
        }
    }

    /** The channel between two files: nothing, a pipe, a socket pair or TCP. */
    enum Through {
        NOTHING,
        PIPE,
        SOCKET,
        TCP
    }

    @TempDir
    Path folder;

    private final ExecutorService others = Executors.newCachedThreadPool();

    @AfterEach
    void stop() throws InterruptedException {
        others.shutdownNow();
        assertTrue(others.awaitTermination(120, TimeUnit.SECONDS));
    }

    static List<Arguments> cases() {
        var cases = new ArrayList<Arguments>();
        for (Way way : Way.values()) {
            for (Through through : Through.values()) {
                for (int size : SIZES) {
                    cases.add(Arguments.of(way, through, size, true));
                    cases.add(Arguments.of(way, through, size, false));
                }
            }
        }
        return cases;
    }

    @ParameterizedTest
    @MethodSource("cases")
    void everyByteArrives(Way way, Through through, int size, boolean copied) throws Exception {
        byte[] bytes = content(size);
        Path from = Files.write(folder.resolve("from"), bytes);
        Path to = folder.resolve("to");
        try (var source = Endpoint.reading(from);
                var sink = Endpoint.creating(to)) {
            switch (through) {
                case NOTHING -> assertEquals(size, moved(way, source, sink, copied));
                case PIPE -> {
                    var pipe = Pipe.open();
                    relay(way, List.of(source, pipe.sink(), pipe.source(), sink), size, copied);
                }
                case SOCKET -> {
                    var pair = Socket.pair();
                    relay(way, List.of(source, pair[0], pair[1], sink), size, copied);
                }
                case TCP -> {
                    try (var listener = Socket.Listener.open(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))) {
                        var there = new InetSocketAddress(InetAddress.getLoopbackAddress(), listener.port());
                        var near = Socket.connect(there);
                        relay(way, List.of(source, near, listener.accept(), sink), size, copied);
                    }
                }
            }
        }
        assertArrayEquals(bytes, Files.readAllBytes(to));
    }

    /** Moves bytes from the first end to the second, and at the same time from the third to the fourth. */
    private void relay(Way way, List<Endpoint> ends, int size, boolean copied) throws Exception {
        Future<Long> drained = others.submit(() -> moved(way, ends.get(2), ends.get(3), copied));
        assertEquals(size, moved(way, ends.get(0), ends.get(1), copied));
        ends.get(1).close();
        assertEquals(size, drained.get());
        ends.get(2).close();
    }

    private static long moved(Way way, Endpoint source, Endpoint sink, boolean copied) throws IOException {
        var transfer = Transfer.between(source, sink);
        var report = (copied ? transfer : transfer.needing()).runBy(way.mover());
        assertEquals(0, report.lost());
        return report.bytes();
    }

    @ParameterizedTest
    @EnumSource
    void positionsMoveWithTheBytes(Way way) throws IOException {
        byte[] bytes = content(10_000);
        Path from = Files.write(folder.resolve("from"), bytes);
        Path to = folder.resolve("to");
        try (var source = Endpoint.reading(from);
                var sink = Endpoint.creating(to)) {
            for (int part = 0; part < 4; part++) {
                var report = Transfer.between(source, sink).withLength(3000).runBy(way.mover());
                assertEquals(part < 3 ? 3000 : 1000, report.bytes());
            }
        }
        assertArrayEquals(bytes, Files.readAllBytes(to));
    }

    @ParameterizedTest
    @EnumSource
    void aReaderThatLeavesIsAnExceptionWithWhatHadArrived(Way way) throws Exception {
        var mover = way.mover();
        Path from = Files.write(folder.resolve("from"), content(3 << 20));
        try (var source = Endpoint.reading(from);
                var pipe = Pipe.open()) {
            Future<byte[]> few = others.submit(() -> {
                try {
                    return readSome(pipe.source(), 1000);
                } finally {
                    pipe.source().close();
                }
            });
            var failure = assertThrows(
                    TransferException.class, () -> Transfer.between(source, pipe.sink()).runBy(mover));
            assertEquals(EPIPE, failure.errno(), failure.getMessage());
            assertTrue(failure.moved() >= few.get().length, failure.getMessage());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptOrAWatcherStopsItAndSaysHowFarItCame(Way way) throws Exception {
        var mover = way.mover();
        Callable<TransferException> stopped = () -> {
            try (var zeros = Endpoint.reading(Path.of("/dev/zero"));
                    var nowhere = Endpoint.writing(Path.of("/dev/null"))) {
                return assertThrows(TransferException.class, () -> Transfer.between(zeros, nowhere)
                        .watchedBy(moved -> {
                            Thread.currentThread().interrupt();
                            return true;
                        })
                        .runBy(mover));
            }
        };
        assertTrue(others.submit(stopped).get().moved() > 0);
        try (var zeros = Endpoint.reading(Path.of("/dev/zero"));
                var nowhere = Endpoint.writing(Path.of("/dev/null"))) {
            var refused = Transfer.between(zeros, nowhere).watchedBy(moved -> false);
            assertTrue(assertThrows(TransferException.class, () -> refused.runBy(mover)).moved() > 0);
        }
    }

    /** An end for which a transfer waits without limit. */
    enum Stuck {
        FULL_PIPE,
        FULL_SOCKET,
        SILENT_PIPE,
        SILENT_SOCKET
    }

    static List<Arguments> waits() {
        var cases = new ArrayList<Arguments>();
        for (Way way : Way.values()) {
            for (Stuck stuck : Stuck.values()) {
                cases.add(Arguments.of(way, stuck, true));
                cases.add(Arguments.of(way, stuck, false));
            }
        }
        return cases;
    }

    @ParameterizedTest
    @MethodSource("waits")
    void anInterruptEndsAWaitAndLeavesBothEndsOpen(Way way, Stuck stuck, boolean copied) throws Exception {
        var mover = way.mover();
        byte[] bytes = content(8 << 20);
        Path from = Files.write(folder.resolve("from"), bytes);
        boolean full = stuck == Stuck.FULL_PIPE || stuck == Stuck.FULL_SOCKET;
        var ends = stuck == Stuck.FULL_PIPE || stuck == Stuck.SILENT_PIPE ? pipe() : List.<Endpoint>of(Socket.pair());
        var in = ends.get(1);
        try (var file = full ? Endpoint.reading(from) : Endpoint.creating(folder.resolve("to"));
                var out = ends.get(0)) {
            var source = full ? file : out;
            var sink = full ? in : file;
            var waits = new CountDownLatch(1);
            var seen = new AtomicLong(-1);
            var transfer = (copied ? Transfer.between(source, sink) : Transfer.between(source, sink).needing())
                    .watchedBy(moved -> {
                        if (seen.getAndSet(moved) == moved) {
                            waits.countDown();
                        }
                        return true;
                    });
            var failure = new CompletableFuture<TransferException>();
            var worker = new Thread(() -> {
                try {
                    var thrown = assertThrows(TransferException.class, () -> transfer.runBy(mover));
                    assertTrue(Thread.currentThread().isInterrupted());
                    failure.complete(thrown);
                } catch (Throwable wrong) {
                    failure.completeExceptionally(wrong);
                }
            });
            worker.setDaemon(true);
            worker.start();
            // If the transfer blocked in a call, it would never call its watcher.
            assertTrue(waits.await(30, TimeUnit.SECONDS), "no look while it waits");
            worker.interrupt();
            var thrown = failure.get(120, TimeUnit.SECONDS);
            assertTrue(thrown.getCause() instanceof ClosedByInterruptException, thrown.toString());
            assertEquals(0, thrown.errno());
            if (full) {
                assertTrue(thrown.moved() > 0, thrown.getMessage());
                in.close();
                byte[] arrived = rest(out);
                assertEquals(thrown.moved(), arrived.length);
                assertArrayEquals(Arrays.copyOf(bytes, arrived.length), arrived);
                assertEquals(bytes.length - arrived.length, rest(source).length);
            } else {
                assertEquals(0, thrown.moved());
                try (Arena arena = Arena.ofConfined()) {
                    in.write(arena.allocateFrom("still open"));
                    assertEquals(11, out.read(arena.allocate(100)));
                }
            }
        } finally {
            in.close();
        }
    }

    private static List<Endpoint> pipe() throws IOException {
        var pipe = Pipe.open();
        return List.of(pipe.source(), pipe.sink());
    }

    @Test
    void anInterruptedThreadMovesAndReadsNothing() throws Exception {
        try (var pipe = Pipe.open();
                var listener = Socket.Listener.open(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
                var zeros = Endpoint.reading(Path.of("/dev/zero"));
                var arena = Arena.ofShared()) {
            var transfer = Transfer.between(zeros, pipe.sink());
            var buffer = arena.allocate(100);
            others.submit(() -> {
                        Thread.currentThread().interrupt();
                        assertEquals(0, assertThrows(TransferException.class, transfer::run).moved());
                        assertThrows(ClosedByInterruptException.class, () -> pipe.source().read(buffer));
                        assertThrows(ClosedByInterruptException.class, () -> pipe.sink().write(buffer));
                        assertThrows(ClosedByInterruptException.class, listener::accept);
                        assertTrue(Thread.interrupted());
                        return null;
                    })
                    .get();
            assertEquals(100, transfer.withLength(100).run().bytes());
            assertEquals(100, pipe.source().read(buffer));
        }
    }

    private static byte[] rest(Endpoint source) throws IOException {
        var got = new ByteArrayOutputStream();
        try (Arena arena = Arena.ofConfined()) {
            var buffer = arena.allocate(1 << 16);
            for (long count = source.read(buffer); count > 0; count = source.read(buffer)) {
                got.write(buffer.asSlice(0, count).toArray(ValueLayout.JAVA_BYTE));
            }
        }
        return got.toByteArray();
    }

    @ParameterizedTest
    @EnumSource
    void whatAWatcherThrowsStopsItAndIsTheCause(Way way) throws IOException {
        var mover = way.mover();
        var mistake = new IllegalStateException("on purpose");
        try (var zeros = Endpoint.reading(Path.of("/dev/zero"));
                var nowhere = Endpoint.writing(Path.of("/dev/null"))) {
            var transfer = Transfer.between(zeros, nowhere).watchedBy(moved -> {
                throw mistake;
            });
            var failure = assertThrows(TransferException.class, () -> transfer.runBy(mover));
            assertSame(mistake, failure.getCause());
        }
    }

    @Test
    void memoryThatMayNotBeUsedIsTheCallersMistake() throws Exception {
        Path from = Files.write(folder.resolve("from"), content(10));
        try (var source = Endpoint.reading(from);
                var arena = Arena.ofConfined()) {
            assertThrows(IllegalArgumentException.class, () -> source.read(MemorySegment.ofArray(new byte[10])));
            var ours = arena.allocate(10);
            others.submit(() -> assertThrows(WrongThreadException.class, () -> source.read(ours))).get();
            assertEquals(10, source.read(ours));
        }
    }

    @Test
    void aClosedEndIsAnExceptionAndNeverSomebodyElsesFile() throws Exception {
        var pipe = Pipe.open();
        Future<Long> waiting = others.submit(() -> moved(Way.PLAIN, pipe.source(), Endpoint.writing(Path.of("/dev/null")), true));
        pipe.sink().close();
        assertEquals(0, waiting.get());
        pipe.close();
        pipe.close();
        assertThrows(ClosedChannelException.class, () -> Transfer.between(pipe.source(), pipe.sink()).run());
        var pair = Socket.pair();
        Future<Long> reading = others.submit(() -> moved(Way.PLAIN, pair[0], Endpoint.writing(Path.of("/dev/null")), true));
        pair[0].close();
        if (!reading.isDone()) {
            // The close may wake the transfer, or may come before its start.
            try {
                assertEquals(0, reading.get());
            } catch (java.util.concurrent.ExecutionException closed) {
                assertTrue(closed.getCause() instanceof ClosedChannelException, closed.toString());
            }
        }
        pair[1].close();
    }

    @Test
    void aPipeIsAsLargeAsItIsToldToBe() throws IOException {
        try (var pipe = Pipe.open()) {
            assertEquals(1 << 18, pipe.capacity(1 << 18));
            assertEquals(1 << 18, pipe.capacity());
        }
    }

    @Test
    void thePlanExplainsItselfOrSaysWhatIsMissing() throws IOException {
        Path from = Files.write(folder.resolve("from"), content(100));
        try (var source = Endpoint.reading(from);
                var pipe = Pipe.open()) {
            var transfer = Transfer.between(source, pipe.sink());
            if (Native.orNull() == null) {
                var missing = assertThrows(UnsupportedOperationException.class, transfer::plan);
                assertTrue(missing.getMessage().contains("linux-"), missing.getMessage());
                return;
            }
            assertTrue(transfer.plan().contains("\"read-write\""), transfer.plan());
            assertEquals("read-write", transfer.by("read-write").run().mechanism());
            assertThrows(RuntimeException.class, () -> transfer.by("teleport").run());
        }
    }

    @Test
    void whatMakesNoSenseIsRefusedBeforeAnythingMoves() throws IOException {
        assertThrows(IOException.class, () -> Endpoint.reading(folder.resolve("nothing")));
        Files.write(folder.resolve("there"), content(1));
        assertThrows(IOException.class, () -> Endpoint.creating(folder.resolve("there")));
        try (var pipe = Pipe.open()) {
            var transfer = Transfer.between(pipe.source(), pipe.sink());
            assertThrows(IllegalArgumentException.class, () -> transfer.withLength(-1));
        }
        assertThrows(
                java.net.UnknownHostException.class,
                () -> Socket.connect(InetSocketAddress.createUnresolved("nowhere.invalid", 1)));
    }

    private static byte[] readSome(Endpoint source, int least) throws IOException {
        var got = new ByteArrayOutputStream();
        try (Arena arena = Arena.ofConfined()) {
            var buffer = arena.allocate(512);
            while (got.size() < least) {
                long count = source.read(buffer);
                got.write(buffer.asSlice(0, count).toArray(ValueLayout.JAVA_BYTE));
            }
        }
        return got.toByteArray();
    }

    private static byte[] content(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }
}
