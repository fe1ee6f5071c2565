package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

class BatchTest {
    private static final Options SMALL = Options.USUAL.withCapacity(8192);

    private static byte[] message(int number) {
        byte[] bytes = new byte[number * 7];
        Arrays.fill(bytes, (byte) number);
        return bytes;
    }

    private static int sendWhatFits(Pair ring) throws IOException {
        int count = 0;
        try (var batch = ring.producer().batch()) {
            for (var room = batch.loan(0); room != null; room = batch.loan(count * 7L)) {
                room.copyFrom(MemorySegment.ofArray(message(count)));
                count++;
            }
            assertEquals(count, batch.size());
            assertThrows(IllegalStateException.class, () -> ring.producer().trySend(new byte[1]));
            assertNull(ring.consumer().tryReceive());
            batch.commit();
            assertThrows(IllegalStateException.class, () -> batch.loan(1));
            assertThrows(IllegalStateException.class, batch::commit);
        }
        return count;
    }

    @Test
    void aBatchAppearsAtOnceAndIsReleasedAtOnce() throws IOException {
        for (Options options : new Options[] {SMALL, SMALL.withChecksums(), SMALL.withChecksums().untrusted()}) {
            try (var ring = Pair.of(options)) {
                long all = 0;
                for (int turn = 0; turn < 20; turn++) {
                    int count = sendWhatFits(ring);
                    try (var samples = ring.consumer().receiveAll()) {
                        for (int number = 0; number < count; number++) {
                            assertArrayEquals(message(number), samples.next().toArray(JAVA_BYTE));
                        }
                        assertNull(samples.next());
                        assertEquals(all, ring.consumer().received());
                        assertThrows(IllegalStateException.class, () -> ring.consumer().tryReceive());
                    }
                    all += count;
                    assertEquals(all, ring.producer().sent());
                    assertEquals(all, ring.consumer().received());
                    // Sends a message of another size in each turn, so that the next batches wrap at different
                    // positions.
                    ring.producer().send(new byte[turn]);
                    ring.consumer().receive().close();
                    all++;
                }
            }
        }
    }

    @Test
    void whatIsNotCommittedNeverWasAndWhatIsNotShownStays() throws IOException {
        try (var ring = Pair.of(SMALL)) {
            try (var batch = ring.producer().batch()) {
                batch.loan(5).fill((byte) 1);
            }
            try (var batch = ring.producer().batch()) {
                batch.commit();
            }
            assertNull(ring.consumer().tryReceive());
            for (byte number = 0; number < 3; number++) {
                ring.producer().send(new byte[] {number});
            }
            var samples = ring.consumer().receiveAll();
            assertEquals(0, samples.next().get(JAVA_BYTE, 0));
            samples.close();
            samples.close();
            assertThrows(IllegalStateException.class, samples::next);
            assertEquals(1, ring.consumer().received());
            for (byte number = 1; number < 3; number++) {
                try (var sample = ring.consumer().receive()) {
                    assertEquals(number, sample.segment().get(JAVA_BYTE, 0));
                }
            }
            var large = ring.producer().largest() + 1;
            try (var batch = ring.producer().batch()) {
                assertThrows(RingException.TooLarge.class, () -> batch.loan(large));
            }
        }
    }
}
