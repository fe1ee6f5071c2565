package dev.thalweg.transfer;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import dev.thalweg.SharedMemory;

/**
 * Moves more bytes than any call moves (0x7ffff000) and more than 32 bits can count. The source is a sparse memory file
 * that occupies a few pages. Some bytes of it are marks. The tests check the marks, and the first and last byte of
 * every buffer.
 */
@Timeout(600)
class LargeTest {
    private static final long MOST = 0x7ffff000L;
    private static final long SIZE = (1L << 31) + 4097;
    private static final long[] MARKS = {0, MOST - 1, MOST, (1L << 31) - 1, 1L << 31, SIZE - 1};
    private static final int BUFFER = 1 << 20;

    @TempDir
    Path folder;

    private SharedMemory large;
    private final ExecutorService others = Executors.newCachedThreadPool();

    @BeforeEach
    void make() throws IOException {
        large = SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-large", SIZE);
        for (int mark = 0; mark < MARKS.length; mark++) {
            large.segment().set(JAVA_BYTE, MARKS[mark], (byte) (mark + 1));
        }
    }

    @AfterEach
    void stop() throws InterruptedException {
        large.close();
        others.shutdownNow();
        assertEquals(true, others.awaitTermination(120, TimeUnit.SECONDS));
    }

    @ParameterizedTest
    @EnumSource
    void aChannelGoesOnWhereOneCallEnds(FileChannels.Way way) throws IOException {
        try (var source = FileChannel.open(Path.of(large.name()));
                // To /dev/null, one system call moves the maximum number of bytes.
                var nowhere = FileChannel.open(Path.of("/dev/null"), StandardOpenOption.WRITE)) {
            var choice = new FileChannels.Choice(way, BUFFER, "the test wants it");
            assertEquals(SIZE, FileChannels.transfer(source, 0, Long.MAX_VALUE, nowhere, choice));
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyByteOfAChannelArrives(FileChannels.Way way) throws Exception {
        Path fifo = folder.resolve("fifo");
        assertEquals(0, new ProcessBuilder("mkfifo", fifo.toString()).start().waitFor());
        Future<Long> arriving = others.submit(() -> {
            try (var out = FileChannel.open(fifo)) {
                return checked(buffer -> out.read(buffer.asByteBuffer()));
            }
        });
        try (var source = FileChannel.open(Path.of(large.name()));
                var sink = FileChannel.open(fifo, StandardOpenOption.WRITE)) {
            var choice = new FileChannels.Choice(way, BUFFER, "the test wants it");
            assertEquals(SIZE, FileChannels.transfer(source, 0, Long.MAX_VALUE, sink, choice));
        }
        assertEquals(SIZE, arriving.get());
    }

    @ParameterizedTest
    @CsvSource({"PLAIN, true", "PLAIN, false", "PLANNED, true", "PLANNED, false"})
    void everyByteOfATransferArrives(TransferTest.Way way, boolean copied) throws Exception {
        var mover = way.mover();
        try (var source = Endpoint.reading(Path.of(large.name()));
                var pipe = Pipe.open()) {
            pipe.capacity(BUFFER);
            Future<Long> arriving = others.submit(() -> checked(pipe.source()::read));
            var transfer = Transfer.between(source, pipe.sink());
            var report = (copied ? transfer : transfer.needing()).runBy(mover);
            assertEquals(SIZE, report.bytes());
            assertEquals(0, report.lost());
            pipe.sink().close();
            assertEquals(SIZE, arriving.get());
        }
    }

    /** Reads into memory; returns the number of bytes, or 0 or less at the end. */
    private interface Source {
        long read(MemorySegment buffer) throws IOException;
    }

    /** Checks the marks, and both ends of every buffer. Returns the number of bytes. */
    private static long checked(Source source) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            var buffer = arena.allocate(BUFFER);
            long at = 0;
            for (long got = source.read(buffer); got > 0; got = source.read(buffer)) {
                check(buffer, at, at);
                check(buffer, at, at + got - 1);
                for (long mark : MARKS) {
                    if (at <= mark && mark < at + got) {
                        check(buffer, at, mark);
                    }
                }
                at += got;
            }
            return at;
        }
    }

    private static void check(MemorySegment buffer, long begins, long at) {
        int expected = 0;
        for (int mark = 0; mark < MARKS.length; mark++) {
            expected = MARKS[mark] == at ? mark + 1 : expected;
        }
        assertEquals(expected, buffer.get(JAVA_BYTE, at - begins), () -> "byte " + at);
    }
}
