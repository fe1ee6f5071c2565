package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import dev.thalweg.internal.Libc;

/** A peer that violates the protocol: every violation leads to an exception, and none ends the JVM. */
class HostileTest {
    private static final long DATA = 8192;
    private static final int EPOCH = 7;
    private static final int F_ADD_SEALS = 1033;
    private static final int ALL_BUT_WRITE = 7;
    private static final int FOR_ONE_WRITER = 0x17;
    /** Time limit of all tests together. It only ends tests that hang. */
    private static final Deadline SOON = Deadline.in(Duration.ofMinutes(10));

    @TempDir
    Path folder;

    private static Geometry geometry() {
        return new Geometry(4096, DATA, false, EPOCH, 1);
    }

    /** Returns a memory file with these contents, size and seals. All its pages are allocated. */
    private static int file(byte[] page, long size, int seals) throws IOException {
        return file(page, size, size, seals);
    }

    /** Returns a memory file of which only the first bytes, and the page with the contents, are allocated. */
    private static int file(byte[] page, long size, long allocated, int seals) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            int fd = (int) Libc.MEMFD_CREATE.on("liar", scratch.allocateFrom("liar"), 3);
            Libc.FTRUNCATE.on("liar", fd, size);
            if (allocated > 0) {
                Libc.FALLOCATE.on("liar", fd, 0, 0L, allocated);
            }
            MemorySegment bytes = scratch.allocateFrom(JAVA_BYTE, page);
            Libc.PWRITE.on("liar", fd, bytes, bytes.byteSize(), 0L);
            if (seals != 0) {
                Libc.FCNTL.on("liar", fd, F_ADD_SEALS, seals);
            }
            return fd;
        }
    }

    /** Offers a memory file to a consumer, checks that it refuses, and returns its exception. */
    private static RingException offered(int fd) throws IOException {
        Link[] links = Link.pair();
        links[1].send(new Hello(Hello.Kind.OFFER, EPOCH).toBytes(), fd, Deadline.NOW);
        // Completes the handshake of a consumer that accepts the file, so that a failed test ends at once.
        links[1].send(new Hello(Hello.Kind.READY, EPOCH).toBytes(), -1, Deadline.NOW);
        if (fd >= 0) {
            Libc.CLOSE.attempt(fd);
        }
        var thrown = assertThrows(
                RingException.class, () -> Handshake.accept(links[0], Options.USUAL, () -> SOON));
        links[1].receive(SOON);
        if (fd >= 0) {
            Hello told = Hello.parse(links[1].receive(SOON).bytes());
            assertEquals(Hello.Kind.REFUSE, told.kind());
        }
        links[1].close();
        return thrown;
    }

    @Test
    void memoryThatIsNotWhatWasAgreedIsRefused() throws IOException {
        Geometry good = geometry();
        byte[] page = good.toBytes(Role.PRODUCER);
        long whole = good.header() + DATA;
        for (int seals : new int[] {0, 2, 4, ALL_BUT_WRITE}) {
            var refused = offered(file(page, whole, seals));
            assertTrue(refused instanceof RingException.NotPermitted, refused.toString());
        }
        Geometry[] lies = {
            new Geometry(4096, DATA * 2, false, EPOCH, 1),
            new Geometry(4096, DATA / 2, false, EPOCH, 1),
            new Geometry(4096, 12288, false, EPOCH, 1),
            new Geometry(4096, 1L << 63, false, EPOCH, 1),
            new Geometry(0, DATA, false, EPOCH, 1),
            new Geometry(8192, DATA, false, EPOCH, 1),
            new Geometry(Integer.MIN_VALUE, DATA, false, EPOCH, 1),
            new Geometry(4096, DATA, false, EPOCH + 1, 1),
        };
        for (Geometry lie : lies) {
            var corrupt = offered(file(lie.toBytes(Role.PRODUCER), whole, FOR_ONE_WRITER));
            assertTrue(corrupt instanceof RingException.Corrupt, lie + ": " + corrupt);
        }
        assertTrue(offered(file(page, whole + 4096, FOR_ONE_WRITER)) instanceof RingException.Corrupt);
        assertTrue(offered(file(page, 10, FOR_ONE_WRITER)) instanceof RingException.Corrupt);
        byte[] other = good.toBytes(Role.CONSUMER);
        assertTrue(offered(file(other, whole, FOR_ONE_WRITER)) instanceof RingException.Corrupt);
        page[8] = 2;
        var version = offered(file(page, whole, FOR_ONE_WRITER));
        assertTrue(version.getMessage().contains("version 2"), version.toString());
        assertTrue(offered(-1) instanceof RingException.Corrupt);
    }

    /** The kernel charges a missing page to the process that touches it first, which would be the consumer. */
    @Test
    void memoryThatTheConsumerWouldPayForIsRefused() throws IOException {
        byte[] page = geometry().toBytes(Role.PRODUCER);
        long whole = geometry().header() + DATA;
        for (long allocated : new long[] {0, 4096, whole - 4096}) {
            var corrupt = offered(file(page, whole, allocated, FOR_ONE_WRITER));
            assertTrue(corrupt instanceof RingException.Corrupt, corrupt.toString());
            assertTrue(corrupt.getMessage().contains("allocated"), corrupt.toString());
        }
        for (int header : new int[] {1 << 17, 1 << 28, 1 << 30}) {
            var large = new Geometry(header, DATA, false, EPOCH, 1);
            // Allocates all of the smallest file only, because the larger ones could be refused for lack of memory.
            long allocated = header == 1 << 17 ? header + DATA : 0;
            var corrupt = offered(file(large.toBytes(Role.PRODUCER), header + DATA, allocated, FOR_ONE_WRITER));
            assertTrue(corrupt instanceof RingException.Corrupt, corrupt.toString());
            assertTrue(corrupt.getMessage().contains("header_len"), corrupt.toString());
        }
    }

    /** Connects with invalid messages before the valid peer. */
    private static List<Link> visitors(Path path, Role role) throws IOException {
        byte[] junk = "GET / HTTP/1.1".getBytes(StandardCharsets.US_ASCII);
        byte[] right = new Hello(role == Role.PRODUCER ? Hello.Kind.OFFER : Hello.Kind.ASK, EPOCH).toBytes();
        byte[] wrong = new Hello(role == Role.PRODUCER ? Hello.Kind.ASK : Hello.Kind.OFFER, EPOCH).toBytes();
        byte[] refusal = new Hello(Hello.Kind.REFUSE, EPOCH, 99).toBytes();
        var stay = new ArrayList<Link>();
        Link.connect(path, SOON).close();
        for (byte[] said : new byte[][] {{1}, junk, new byte[64], right, wrong, refusal}) {
            for (boolean stays : new boolean[] {true, false}) {
                Link link = Link.connect(path, SOON);
                link.send(said, -1, Deadline.NOW);
                if (stays && said != right) {
                    stay.add(link);
                } else {
                    link.close();
                }
            }
        }
        return stay;
    }

    @Test
    void badVisitorsDoNotKeepTheTrueOneOut() throws Exception {
        for (Role role : Role.values()) {
            Path path = folder.resolve("visited-" + role);
            try (var listener = Listener.bind(path);
                    var others = Executors.newSingleThreadExecutor()) {
                List<Link> stay = visitors(path, role);
                Duration patience = Duration.ofSeconds(60);
                if (role == Role.PRODUCER) {
                    var coming = others.submit(() -> Producer.connect(path, Options.USUAL, patience));
                    try (var consumer = Consumer.accept(listener, Options.USUAL, patience);
                            var producer = coming.get()) {
                        assertEquals(producer.epoch(), consumer.epoch());
                    }
                } else {
                    var coming = others.submit(() -> Consumer.connect(path, Options.USUAL, patience));
                    try (var producer = Producer.accept(listener, Options.USUAL, patience);
                            var consumer = coming.get()) {
                        assertEquals(producer.epoch(), consumer.epoch());
                    }
                }
                stay.forEach(Link::close);
            }
        }
    }

    @Test
    void theKernelSignsEachMessage() throws IOException {
        Link[] links = Link.pair();
        links[1].send(new byte[] {1}, -1, Deadline.NOW);
        var got = links[0].receive(SOON);
        assertEquals(ProcessHandle.current().pid(), got.sender());
        links[0].learn(got.sender());
        assertEquals(ProcessHandle.current().pid(), links[0].pid());
        assertThrows(RingException.NotPermitted.class, () -> links[0].learn(got.sender() + 1));
        links[0].close();
        links[1].close();
    }

    @Test
    void noiseInTheHandshakeIsRefused() throws IOException {
        byte[][] noise = {{1}, new byte[64], "GET / HTTP/1.1".getBytes(StandardCharsets.US_ASCII)};
        for (byte[] bytes : noise) {
            Link[] links = Link.pair();
            links[1].send(bytes, -1, Deadline.NOW);
            assertThrows(RingException.Corrupt.class, () -> Handshake.accept(links[0], Options.USUAL, () -> SOON));
            links[1].close();
        }
        Link[] links = Link.pair();
        links[1].send(new Hello(Hello.Kind.REFUSE, 0, 99).toBytes(), -1, Deadline.NOW);
        assertThrows(RingException.NotPermitted.class, () -> Handshake.accept(links[0], Options.USUAL, () -> SOON));
        links[1].close();
        Link[] silent = Link.pair();
        var soon = Deadline.in(Duration.ofMillis(20));
        assertThrows(RingException.TimedOut.class, () -> Handshake.offer(silent[0], Options.USUAL, () -> soon));
        silent[1].close();
    }

    private static void flip(Random dice, byte[] bytes, int count) {
        for (int n = 0; n < count; n++) {
            bytes[dice.nextInt(bytes.length)] ^= (byte) (1 << dice.nextInt(8));
        }
    }

    /** Changes all parts of an offer at random. A failure prints the seed. */
    @Test
    void anyOfferIsARingOrAnException() throws IOException {
        long seed = Long.getLong("thalweg.seed", System.nanoTime());
        var dice = new Random(seed);
        int taken = 0;
        for (int n = 0; n < 500; n++) {
            byte[] page = geometry().toBytes(Role.PRODUCER);
            byte[][] said = {
                new Hello(Hello.Kind.OFFER, EPOCH).toBytes(), new Hello(Hello.Kind.READY, EPOCH).toBytes()
            };
            flip(dice, page, dice.nextInt(3));
            flip(dice, said[dice.nextInt(2)], dice.nextInt(2));
            long size = dice.nextInt(10) == 0 ? dice.nextInt(20_000) : 4096 + DATA;
            int fd = file(page, size, dice.nextInt(10) == 0 ? dice.nextInt(32) : FOR_ONE_WRITER);
            Link[] links = Link.pair();
            links[1].send(said[0], fd, Deadline.NOW);
            links[1].send(said[1], -1, Deadline.NOW);
            Libc.CLOSE.attempt(fd);
            var soon = Deadline.in(Duration.ofMillis(50));
            try (var consumer = new Consumer(Handshake.accept(links[0], Options.USUAL, () -> soon), Options.USUAL)) {
                taken++;
                assertNull(consumer.tryReceive(), "seed " + seed);
            } catch (RingException refused) {
                assertNotNull(refused.getMessage(), "seed " + seed);
            } finally {
                links[1].close();
            }
        }
        assertTrue(taken > 0, "seed " + seed);
    }

    /** A consumer of a hostile ring, and the memory that the hostile peer writes. */
    private record Taken(Consumer consumer, MemorySegment lies, Link liar) implements AutoCloseable {
        static Taken of(Options options) throws IOException {
            Link[] links = Link.pair();
            Memory.Made made = Memory.make(Role.PRODUCER, geometry(), links[1].arena);
            links[1].send(new Hello(Hello.Kind.OFFER, EPOCH).toBytes(), made.descriptor(), Deadline.NOW);
            links[1].send(new Hello(Hello.Kind.READY, EPOCH).toBytes(), -1, Deadline.NOW);
            Libc.CLOSE.attempt(made.descriptor());
            var consumer = new Consumer(Handshake.accept(links[0], options, () -> SOON), options);
            return new Taken(consumer, made.memory().bytes, links[1]);
        }

        void frame(long first, long number, long head) {
            lies.set(JAVA_LONG, 4096, first);
            lies.set(JAVA_LONG, 4096 + 8, number);
            lies.set(JAVA_LONG, Page.CURSOR, head);
        }

        @Override
        public void close() {
            consumer.close();
            liar.close();
        }
    }

    @Test
    void aHeadThatCannotBeIsCorruptForGood() throws IOException {
        for (long head : new long[] {1, 63, DATA + 64, DATA * 2, -1, Long.MIN_VALUE, Long.MAX_VALUE - 63}) {
            try (var taken = Taken.of(Options.USUAL)) {
                assertNull(taken.consumer.tryReceive());
                taken.frame(Frame.firstWord(5, false), 0, head);
                assertThrows(RingException.Corrupt.class, () -> taken.consumer.receive());
                taken.frame(Frame.firstWord(5, false), 0, 64);
                assertThrows(RingException.Corrupt.class, () -> taken.consumer.tryReceive());
            }
        }
        try (var taken = Taken.of(Options.USUAL)) {
            taken.frame(Frame.firstWord(5, false), 0, 64);
            taken.consumer.receive().close();
            taken.frame(Frame.firstWord(5, false), 0, 0);
            assertThrows(RingException.Corrupt.class, () -> taken.consumer.tryReceive());
        }
        // Overwrites a held message.
        try (var taken = Taken.of(Options.USUAL)) {
            taken.frame(Frame.firstWord(5, false), 0, 64);
            var held = taken.consumer.receive().hold();
            taken.frame(Frame.firstWord(5, false), 0, DATA + 64);
            assertThrows(RingException.Corrupt.class, () -> taken.consumer.tryReceive());
            held.close();
        }
    }

    @Test
    void aFrameThatLiesIsCorrupt() throws IOException {
        long[][] lies = {
            {Frame.firstWord(33, false), 0},
            {0xffff_ffffL | 1L << 32, 0},
            {Frame.firstWord(8192, false), 0},
            {Frame.firstWord(5, false), 1},
            {Frame.firstWord(5, true), 0},
            {5 | 1L << 49 | 1L << 32, 0},
            {5, 0},
            {-1, -1},
        };
        for (long[] lie : lies) {
            for (Options options : new Options[] {Options.USUAL, Options.USUAL.untrusted()}) {
                try (var taken = Taken.of(options)) {
                    taken.frame(lie[0], lie[1], 64);
                    assertThrows(RingException.Corrupt.class, () -> taken.consumer.receive());
                    assertEquals(0, taken.consumer.received());
                }
            }
        }
    }

    @Test
    void anUntrustedMessageDoesNotChangeWhileItIsRead() throws IOException {
        try (var taken = Taken.of(Options.USUAL.untrusted())) {
            taken.lies.set(JAVA_BYTE, 4096 + 32, (byte) 1);
            taken.frame(Frame.firstWord(1, false), 0, 64);
            try (var sample = taken.consumer.receive()) {
                taken.lies.set(JAVA_BYTE, 4096 + 32, (byte) 2);
                assertArrayEquals(new byte[] {1}, sample.segment().toArray(JAVA_BYTE));
            }
        }
    }

    @Test
    void aFloodOfWakeUpsOnlyKeepsTheSenderBusy() throws IOException {
        try (var taken = Taken.of(Options.USUAL.withWait(Wait.BLOCK))) {
            // With 0 in this word, the kernel does not mark the peer's memory, so the consumer watches the link.
            Page.INT.setRelease(taken.lies, Page.ALIVE, 0);
            boolean full = false;
            while (!full) {
                try {
                    taken.liar.send(new byte[] {'!'}, -1, Deadline.NOW);
                } catch (RingException.TimedOut queueIsFull) {
                    full = true;
                }
            }
            var patience = Duration.ofMillis(100);
            assertThrows(RingException.TimedOut.class, () -> taken.consumer.receive(patience));
            taken.liar.shutDown();
            assertThrows(RingException.PeerDied.class, () -> taken.consumer.receive());
        }
    }

    /**
     * The peer writes a word that claims it is alive, but puts the word on no robust list. The kernel never marks the
     * word, so the consumer asks the kernel after a while.
     */
    @Test
    void aPeerThatLiesAboutItsLifeIsFoundOut() throws IOException {
        for (Wait wait : new Wait[] {Wait.BLOCK, Wait.HYBRID, Wait.SPIN}) {
            try (var taken = Taken.of(Options.USUAL.withWait(wait))) {
                assertTrue((int) Page.INT.getAcquire(taken.lies, Page.ALIVE) != 0);
                taken.liar.shutDown();
                var patience = Duration.ofSeconds(60);
                assertThrows(RingException.PeerDied.class, () -> taken.consumer.receive(patience));
            }
        }
    }

    /**
     * The peer's tail is inside a frame when it closes. The producer counts the messages after the tail, and reads the
     * payload as the lengths of frames.
     */
    @Test
    void aTailInsideAFrameDoesNotKeepTheProducerBusy() throws Exception {
        // As signed numbers, these lengths give frames of no size or of a negative size.
        for (int length : new int[] {-32, -64, -95, -96, -4096, Integer.MIN_VALUE}) {
            try (var ring = Pair.of(Options.USUAL.withCapacity(DATA))) {
                try (var loan = ring.producer().loan(1024)) {
                    for (long at = 0; at < 1024; at += Integer.BYTES) {
                        loan.segment().set(JAVA_INT, at, length);
                    }
                    loan.commit();
                }
                ring.consuming().own.bytes.set(JAVA_LONG, Page.CURSOR, 2 * Geometry.ALIGN);
                ring.consumer().close();
                var sending = CompletableFuture.supplyAsync(
                        () -> assertThrows(RingException.Closed.class, () -> ring.producer().send(new byte[1])));
                assertEquals(0, sending.get(60, TimeUnit.SECONDS).delivered(), "length " + length);
            }
        }
    }

    @Test
    void aTailThatCannotBeIsCorrupt() throws Exception {
        for (long tail : new long[] {1, 64 * 3, -1, Long.MIN_VALUE}) {
            Link[] links = Link.pair();
            var lying = CompletableFuture.supplyAsync(() -> {
                try {
                    return Handshake.accept(links[1], Options.USUAL, () -> SOON);
                } catch (IOException failure) {
                    throw new AssertionError(failure);
                }
            });
            Options options = Options.USUAL.withCapacity(DATA);
            try (var producer = new Producer(Handshake.offer(links[0], options, () -> SOON))) {
                End liar = lying.get();
                producer.send(new byte[5]);
                producer.send(new byte[6]);
                liar.own.bytes.set(JAVA_LONG, Page.CURSOR, tail);
                byte[] large = new byte[(int) producer.largest()];
                assertThrows(RingException.Corrupt.class, () -> producer.send(large));
                assertThrows(RingException.Corrupt.class, () -> producer.send(new byte[1]));
                liar.close();
            }
        }
    }
}
