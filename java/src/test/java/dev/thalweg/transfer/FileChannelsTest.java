package dev.thalweg.transfer;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
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
import dev.thalweg.transfer.FileChannels.Choice;
import dev.thalweg.transfer.FileChannels.Way;

@Timeout(600)
class FileChannelsTest {
    private static final int[] SIZES = {0, 1, 4095, 65537, 3 << 20};
    private static final int MANY = 16 << 20;
    private static final int FEW = 1 << 20;

    /** Kinds of destinations. */
    enum To {
        FILE,
        APPENDED,
        FIFO,
        PIPE,
        TCP,
        UNIX,
        OTHER;

        boolean isFile() {
            return this == FILE || this == APPENDED;
        }
    }

    /** A sink, and the source from which its bytes are read. Files and memory are checked afterwards. */
    private record Ends(WritableByteChannel sink, ReadableByteChannel source) implements AutoCloseable {
        @Override
        public void close() throws IOException {
            sink.close();
            if (source != null) {
                source.close();
            }
        }
    }

    @TempDir
    Path folder;

    private final ByteArrayOutputStream memory = new ByteArrayOutputStream();
    private final ExecutorService others = Executors.newCachedThreadPool();

    @AfterEach
    void stop() throws InterruptedException {
        others.shutdownNow();
        assertTrue(others.awaitTermination(120, TimeUnit.SECONDS));
    }

    static List<Arguments> cases() {
        var cases = new ArrayList<Arguments>();
        for (Way way : Way.values()) {
            for (To to : To.values()) {
                for (int size : SIZES) {
                    cases.add(Arguments.of(way, to, size));
                }
            }
        }
        return cases;
    }

    @ParameterizedTest
    @MethodSource("cases")
    void everyByteArrives(Way way, To to, int size) throws Exception {
        byte[] bytes = content(size + 20);
        try (var source = opened(bytes)) {
            source.position(3);
            byte[] got;
            try (var ends = ends(to)) {
                Future<byte[]> arriving = ends.source() == null ? null : others.submit(() -> all(ends.source()));
                assertEquals(size, FileChannels.transfer(source, 11, size, ends.sink(), by(way)));
                ends.sink().close();
                got = arriving != null ? arriving.get() : to == To.OTHER ? memory.toByteArray() : written();
            }
            assertArrayEquals(Arrays.copyOfRange(bytes, 11, 11 + size), got);
            assertEquals(3, source.position());
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatIsChosenMovesEverythingToTheEndOfTheFile(To to) throws Exception {
        byte[] bytes = content(FEW);
        try (var source = opened(bytes);
                var ends = ends(to)) {
            Future<byte[]> arriving = ends.source() == null ? null : others.submit(() -> all(ends.source()));
            assertEquals(FEW - 1, FileChannels.transfer(source, 1, Long.MAX_VALUE, ends.sink()));
            assertEquals(0, FileChannels.transfer(source, FEW, 10, ends.sink()));
            assertEquals(0, FileChannels.transfer(source, FEW + 10L, Long.MAX_VALUE, ends.sink()));
            ends.sink().close();
            byte[] got = arriving != null ? arriving.get() : to == To.OTHER ? memory.toByteArray() : written();
            assertArrayEquals(Arrays.copyOfRange(bytes, 1, FEW), got);
        }
    }

    static List<Arguments> waiting() {
        var cases = new ArrayList<Arguments>();
        for (Way way : Way.values()) {
            for (To to : List.of(To.PIPE, To.TCP, To.UNIX)) {
                cases.add(Arguments.of(way, to));
            }
        }
        return cases;
    }

    @ParameterizedTest
    @MethodSource("waiting")
    void aFullSinkThatDoesNotBlockIsGoneOnWithWhereItWas(Way way, To to) throws Exception {
        byte[] bytes = content(MANY);
        try (var source = opened(bytes);
                var ends = ends(to);
                var selector = Selector.open()) {
            var sink = (SelectableChannel) ends.sink();
            sink.configureBlocking(false).register(selector, SelectionKey.OP_WRITE);
            Future<byte[]> arriving = null;
            long moved = FileChannels.transfer(source, 0, MANY, ends.sink(), by(way));
            assertTrue(moved > 0 && moved < MANY, () -> "nobody reads, and it took everything");
            while (moved < MANY) {
                arriving = arriving == null ? others.submit(() -> all(ends.source())) : arriving;
                assertEquals(1, selector.select(10_000));
                selector.selectedKeys().clear();
                moved += FileChannels.transfer(source, moved, Long.MAX_VALUE, ends.sink(), by(way));
            }
            assertEquals(MANY, moved);
            ends.sink().close();
            // Lets the selector finish the close of a channel that is registered with it.
            selector.selectNow();
            assertArrayEquals(bytes, arriving.get());
        }
    }

    @ParameterizedTest
    @MethodSource("waiting")
    void aSourceThatIsMadeShorterEndsThere(Way way, To to) throws Exception {
        byte[] bytes = content(MANY);
        try (var source = opened(bytes);
                var shorter = FileChannel.open(folder.resolve("from"), StandardOpenOption.WRITE);
                var ends = ends(to)) {
            Future<Long> moving = others.submit(() -> {
                long moved = FileChannels.transfer(source, 0, MANY, ends.sink(), by(way));
                ends.sink().close();
                return moved;
            });
            // Waits for the first byte, which shows that the transfer is in progress.
            var first = ByteBuffer.allocate(1);
            assertEquals(1, ends.source().read(first));
            shorter.truncate(FEW);
            byte[] rest = all(ends.source());
            assertEquals(1 + rest.length, moving.get());
            assertTrue(rest.length >= FEW - 1 && rest.length < MANY - 1, rest.length + " bytes");
            assertEquals(bytes[0], first.get(0));
            assertArrayEquals(Arrays.copyOfRange(bytes, 1, 1 + rest.length), rest);
        }
    }

    @ParameterizedTest
    @MethodSource("waiting")
    void aReaderThatGoesAwayIsAFailureThatSaysHowFarItCame(Way way, To to) throws Exception {
        try (var source = opened(content(MANY));
                var ends = ends(to)) {
            Future<Long> moving = others.submit(() -> assertThrows(
                            TransferException.class,
                            () -> FileChannels.transfer(source, 0, MANY, ends.sink(), by(way)))
                    .moved());
            assertEquals(1, ends.source().read(ByteBuffer.allocate(1)));
            ends.source().close();
            assertTrue(moving.get() < MANY, "all of it went nowhere");
        }
    }

    @Test
    void anInterruptEndsItAndIsTheCause() throws Exception {
        try (var source = opened(content(MANY));
                var ends = ends(To.PIPE)) {
            Thread[] mover = new Thread[1];
            Future<TransferException> moving = others.submit(() -> {
                mover[0] = Thread.currentThread();
                return assertThrows(
                        TransferException.class,
                        () -> FileChannels.transfer(source, 0, MANY, ends.sink(), by(Way.BUFFER)));
            });
            assertEquals(1, ends.source().read(ByteBuffer.allocate(1)));
            mover[0].interrupt();
            var failure = moving.get();
            assertInstanceOf(ClosedByInterruptException.class, failure.getCause());
            assertTrue(failure.moved() < MANY, failure.getMessage());
        }
    }

    @ParameterizedTest
    @EnumSource
    void placesBeyondTwoGiBAreFound(Way way) throws Exception {
        long far = (1L << 31) + 5;
        byte[] bytes = content(10_000);
        Path from = folder.resolve("sparse");
        try (var file = FileChannel.open(
                from, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            file.write(ByteBuffer.wrap(bytes), far);
            try (var ends = ends(To.FILE)) {
                assertEquals(bytes.length, FileChannels.transfer(file, far, Long.MAX_VALUE, ends.sink(), by(way)));
            }
            assertArrayEquals(bytes, written());
        }
    }

    /** Files in /proc report a size of 0, and transferTo reports no bytes for them. */
    @ParameterizedTest
    @EnumSource
    void filesOfTheKernelAreReadToTheirEnd(Way way) throws Exception {
        try (var source = FileChannel.open(Path.of("/proc/self/limits"));
                var ends = ends(To.OTHER)) {
            long moved = FileChannels.transfer(source, 0, Long.MAX_VALUE, ends.sink(), by(way));
            assertEquals(memory.size(), moved);
            assertTrue(memory.toString().contains("Max open files"), memory.toString());
        }
    }

    @ParameterizedTest
    @EnumSource
    void theChoiceSaysWhatItRestsOn(To to) throws Exception {
        try (var ends = ends(to)) {
            Choice choice = FileChannels.choose(ends.sink(), FEW);
            if (to == To.OTHER || choice.why().startsWith("not measured: ")) {
                assertEquals(to.isFile() ? Way.TRANSFER_TO : Way.BUFFER, choice.way(), choice.why());
            } else {
                assertTrue(choice.why().startsWith("by the profile: "), choice.why());
            }
            assertEquals(choice, FileChannels.choose(ends.sink(), FEW));
        }
    }

    @Test
    void theProfilesOrderDecidesWhereBothWereMeasured() {
        String sendfile = "{\"by\":1.5,\"evidence\":{\"tuning\":{}},\"mechanism\":\"sendfile\",\"tuning\":{},\"verdict\":\"%s\"}";
        String buffer = "{\"evidence\":{\"tuning\":{\"buffer\":7}},\"mechanism\":\"read-write\",\"tuning\":{\"buffer\":65536},"
                + "\"verdict\":\"%s\",\"why\":\"fastest measured\"}";
        String plan = "{\"impossible\":null,\"verdicts\":[%s,%s]}";
        var tcp = ChannelPlanner.Sink.TCP;
        Choice buffered = ChannelPlanner.judged(tcp, plan.formatted(buffer.formatted("chosen"), sendfile.formatted("slower")));
        assertEquals(new Choice(Way.BUFFER, 65536, "by the profile: sendfile does not rank before read-write"), buffered);
        Choice handed = ChannelPlanner.judged(tcp, plan.formatted(sendfile.formatted("tie"), buffer.formatted("slower")));
        assertEquals(new Choice(Way.TRANSFER_TO, 65536, "by the profile: sendfile ranks before read-write"), handed);
        Choice one = ChannelPlanner.judged(tcp, plan.formatted(sendfile.formatted("chosen"), buffer.formatted("unmeasured")));
        assertEquals(Way.BUFFER, one.way());
        assertTrue(one.why().startsWith("not measured: "), one.why());
    }

    @Test
    void everyVerdictOfARealPlanIsUnderstood() throws IOException {
        if (Native.orNull() == null) {
            Skips.skip("everyVerdictOfARealPlanIsUnderstood", "the native library is not available");
        }
        Files.write(folder.resolve("from"), content(100));
        try (var source = Endpoint.reading(folder.resolve("from"));
                var socket = Socket.unconnected()) {
            String plan = Transfer.between(source, socket).needing().plan();
            long mechanisms = plan.split("\"mechanism\":", -1).length - 1;
            assertTrue(mechanisms > 10, plan);
            assertEquals(mechanisms, ChannelPlanner.VERDICT.matcher(plan).results().count(), plan);
        }
    }

    @ParameterizedTest
    @EnumSource
    void nothingIsMovedFromBehindTheEnd(Way way) throws Exception {
        try (var source = opened(content(10));
                var ends = ends(To.OTHER)) {
            for (long behind = 0; behind < 7; behind++) {
                assertEquals(0, FileChannels.transfer(source, Long.MAX_VALUE - behind, 5, ends.sink(), by(way)));
                assertEquals(0, FileChannels.transfer(source, Long.MAX_VALUE - behind, Long.MAX_VALUE, ends.sink()));
            }
        }
    }

    @Test
    void whatMakesNoSenseIsRefused() throws Exception {
        try (var source = opened(content(10));
                var ends = ends(To.OTHER)) {
            assertThrows(IllegalArgumentException.class, () -> FileChannels.transfer(source, -1, 1, ends.sink()));
            assertThrows(IllegalArgumentException.class, () -> FileChannels.transfer(source, 0, -1, ends.sink()));
            assertThrows(IllegalArgumentException.class, () -> new Choice(Way.BUFFER, 0, ""));
            assertThrows(NullPointerException.class, () -> FileChannels.transfer(source, 0, 1, null));
            ends.sink().close();
            assertThrows(IOException.class, () -> FileChannels.transfer(source, 0, 1, ends.sink()));
        }
    }

    private static Choice by(Way way) {
        return new Choice(way, 1 << 16, "the test wants it");
    }

    private Ends ends(To to) throws IOException, InterruptedException {
        return switch (to) {
            case FILE -> {
                var file = FileChannel.open(before(), StandardOpenOption.WRITE);
                yield new Ends(file.position(file.size()), null);
            }
            case APPENDED -> new Ends(FileChannel.open(before(), StandardOpenOption.APPEND), null);
            case FIFO -> {
                Path fifo = folder.resolve("fifo");
                assertEquals(0, new ProcessBuilder("mkfifo", fifo.toString()).start().waitFor());
                // Opening one end of a FIFO waits for the other end. Opening it for both does not wait.
                try (var both = FileChannel.open(fifo, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                    assertTrue(both.isOpen());
                    var sink = FileChannel.open(fifo, StandardOpenOption.WRITE);
                    yield new Ends(sink, FileChannel.open(fifo, StandardOpenOption.READ));
                }
            }
            case PIPE -> {
                var pipe = java.nio.channels.Pipe.open();
                yield new Ends(pipe.sink(), pipe.source());
            }
            case TCP -> connected(
                    ServerSocketChannel.open(), new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            case UNIX -> connected(
                    ServerSocketChannel.open(StandardProtocolFamily.UNIX),
                    UnixDomainSocketAddress.of(folder.resolve("socket")));
            case OTHER -> new Ends(Channels.newChannel(memory), null);
        };
    }

    private static Ends connected(ServerSocketChannel server, SocketAddress at) throws IOException {
        try (server) {
            server.bind(at);
            var sink = SocketChannel.open(server.getLocalAddress());
            return new Ends(sink, server.accept());
        }
    }

    /** Creates a file with contents. */
    private Path before() throws IOException {
        return Files.writeString(folder.resolve("to"), "before");
    }

    private byte[] written() throws IOException {
        byte[] all = Files.readAllBytes(folder.resolve("to"));
        assertEquals("before", new String(all, 0, 6));
        return Arrays.copyOfRange(all, 6, all.length);
    }

    private static byte[] all(ReadableByteChannel source) throws IOException {
        var got = new ByteArrayOutputStream();
        var buffer = ByteBuffer.allocate(1 << 16);
        while (source.read(buffer.clear()) >= 0) {
            got.write(buffer.array(), 0, buffer.position());
        }
        return got.toByteArray();
    }

    private FileChannel opened(byte[] bytes) throws IOException {
        return FileChannel.open(Files.write(folder.resolve("from"), bytes));
    }

    private static byte[] content(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }
}
