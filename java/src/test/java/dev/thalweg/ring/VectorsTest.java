package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import dev.thalweg.Skips;

/** The golden vectors in tests/vectors, which every language writes and reads. */
class VectorsTest {
    private static final long EPOCH = 0x0123_4567_89ab_cdefL;
    private static final int[] FRESH = {0, 5, 32, 33, 300};
    private static final int[] WRAPPED = {1000, 1000, 1000, 200, 1000, 1, 64};

    @TempDir
    Path folder;

    private static byte[] payload(int number, int length) {
        byte[] bytes = new byte[length];
        for (int at = 0; at < length; at++) {
            bytes[at] = (byte) (number * 17 + at);
        }
        return bytes;
    }

    private static Pair fresh() throws IOException {
        var ring = Pair.of(Options.USUAL.withCapacity(4096));
        for (int number = 0; number < FRESH.length; number++) {
            ring.producer().send(payload(number, FRESH[number]));
        }
        return ring;
    }

    private static Pair wrapped() throws IOException {
        var ring = Pair.of(Options.USUAL.withCapacity(4096).withChecksums());
        for (int number = 0; number < 4; number++) {
            ring.producer().send(payload(number, WRAPPED[number]));
        }
        for (int number = 0; number < 3; number++) {
            ring.consumer().receive().close();
        }
        for (int number = 4; number < WRAPPED.length; number++) {
            ring.producer().send(payload(number, WRAPPED[number]));
        }
        return ring;
    }

    private static void assertWrites(Pair ring, String name) throws IOException {
        byte[] producer = Dump.golden(ring.producing().own, Role.PRODUCER, EPOCH);
        byte[] consumer = Dump.golden(ring.consuming().own, Role.CONSUMER, EPOCH);
        assertArrayEquals(Dump.read(name + ".producer.hex"), producer);
        assertArrayEquals(Dump.read(name + ".consumer.hex"), consumer);
    }

    @Test
    void whatIsWrittenIsTheGoldenVectors() throws IOException {
        try (var ring = fresh()) {
            assertWrites(ring, "ring-fresh");
        }
        try (var ring = wrapped()) {
            assertWrites(ring, "ring-wrapped");
        }
    }

    /** Reads the frames of a dump from the tail on. */
    private static void assertReads(String name, int first, int[] lengths) throws IOException {
        byte[] producer = Dump.read(name + ".producer.hex");
        byte[] consumer = Dump.read(name + ".consumer.hex");
        Geometry geometry = Geometry.parse(producer, Role.PRODUCER);
        assertTrue(geometry.agreesWith(Geometry.parse(consumer, Role.CONSUMER)));
        assertEquals(EPOCH, geometry.epoch());
        assertArrayEquals(Arrays.copyOf(producer, Geometry.LENGTH), geometry.toBytes(Role.PRODUCER));
        byte[] data = Arrays.copyOfRange(producer, geometry.header(), producer.length);
        // Repeats the data, like the double mapping of a ring, so that data that wraps around the end is contiguous.
        byte[] twice = Arrays.copyOf(data, 2 * data.length);
        System.arraycopy(data, 0, twice, data.length, data.length);
        var words = ByteBuffer.wrap(twice).order(ByteOrder.LITTLE_ENDIAN);
        long head = ByteBuffer.wrap(producer).order(ByteOrder.LITTLE_ENDIAN).getLong((int) Page.CURSOR);
        long at = ByteBuffer.wrap(consumer).order(ByteOrder.LITTLE_ENDIAN).getLong((int) Page.CURSOR);
        for (int number = first; number < lengths.length; number++) {
            int place = (int) (at % geometry.capacity());
            long word = words.getLong(place);
            int length = Frame.parse(word, words.getLong(place + 8), head - at, number);
            byte[] found = Arrays.copyOfRange(twice, place + Frame.HEADER, place + Frame.HEADER + length);
            assertArrayEquals(payload(number, lengths[number]), found);
            assertEquals(geometry.checksums(), Frame.isSummed(word));
            if (geometry.checksums()) {
                assertEquals(words.getInt(place + 16), Frame.sum(length, number, MemorySegment.ofArray(found)));
            }
            at += Frame.occupied(length);
        }
        assertEquals(head, at);
    }

    @Test
    void theGoldenVectorsAreReadFrameByFrame() throws IOException {
        assertReads("ring-fresh", 0, FRESH);
        assertReads("ring-wrapped", 3, WRAPPED);
    }

    @Test
    void theHandshakeIsWrittenAndRead() throws IOException {
        byte[] golden = Dump.read("handshake.hex");
        Hello[] said = {
            new Hello(Hello.Kind.OFFER, EPOCH),
            new Hello(Hello.Kind.ASK, 0),
            new Hello(Hello.Kind.ACCEPT, EPOCH),
            new Hello(Hello.Kind.READY, EPOCH),
            new Hello(Hello.Kind.REFUSE, EPOCH, Hello.TAKEN),
        };
        assertEquals(said.length * Hello.LENGTH, golden.length);
        for (int at = 0; at < said.length; at++) {
            byte[] message = Arrays.copyOfRange(golden, at * Hello.LENGTH, (at + 1) * Hello.LENGTH);
            assertArrayEquals(message, said[at].toBytes());
            assertEquals(said[at], Hello.parse(message));
        }
        byte[] later = said[0].toBytes();
        later[8] = 2;
        assertThrows(RingException.Corrupt.class, () -> Hello.parse(later));
    }

    @Test
    void anotherLanguageReadsALivingRing() throws Exception {
        try (var ring = wrapped()) {
            Path producer = folder.resolve("producer");
            Path consumer = folder.resolve("consumer");
            Files.write(producer, Dump.of(ring.producing().own, Role.PRODUCER));
            Files.write(consumer, Dump.of(ring.consuming().own, Role.CONSUMER));
            var builder = new ProcessBuilder(
                    "python3", Dump.VECTORS.resolve("reader.py").toString(), "ring", producer.toString(),
                    consumer.toString());
            Process reader;
            try {
                reader = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            } catch (IOException none) {
                Skips.skip("anotherLanguageReadsALivingRing", "no python3");
                return;
            }
            String told = new String(reader.getInputStream().readAllBytes());
            assertEquals(0, reader.waitFor());
            assertTrue(told.contains("\"epoch\": " + Long.toUnsignedString(ring.producer().epoch())), told);
            for (int number = 3; number < WRAPPED.length; number++) {
                try (var sample = ring.consumer().receive()) {
                    String hex = HexFormat.of().formatHex(sample.segment().toArray(JAVA_BYTE));
                    String message = "{\"seq\": " + number + ", \"payload\": \"" + hex + "\"}";
                    assertTrue(told.contains(message), message);
                }
            }
        }
    }
}
