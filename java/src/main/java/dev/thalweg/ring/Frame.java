package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * A frame: 32 bytes about the payload, then the payload, then nothing up to a multiple of 64. Its header is read as
 * words that were copied once: length, kind and flags in the first, the number in the second, the checksum in the third.
 */
final class Frame {
    /** Bytes before the payload. */
    static final int HEADER = 32;

    private static final long MESSAGE = 1L << 32;
    private static final long SUMMED = 1L << 48;
    private static final long LENGTH = 0xffff_ffffL;

    private Frame() {}

    /** Bytes of the ring that a payload takes with its header. */
    static long occupied(long length) {
        return HEADER + length + Geometry.ALIGN - 1 & -Geometry.ALIGN;
    }

    static long firstWord(int length, boolean summed) {
        return length | MESSAGE | (summed ? SUMMED : 0);
    }

    static boolean isSummed(long first) {
        return (first & SUMMED) != 0;
    }

    /**
     * The length of the payload of a frame, of which {@code room} bytes are committed from its beginning, and which
     * must carry the number {@code due}.
     */
    static int parse(long first, long number, long room, long due) throws RingException.Corrupt {
        if ((first & ~SUMMED & ~LENGTH) != MESSAGE) {
            throw new RingException.Corrupt(
                    "frame " + due + ": kind " + (first >>> 32 & 0xffff) + " with flags " + (first >>> 48));
        }
        long length = first & LENGTH;
        if (occupied(length) > room) {
            throw new RingException.Corrupt(
                    "frame " + due + ": " + length + " bytes of payload in " + room + " committed bytes");
        }
        if (number != due) {
            throw new RingException.Corrupt("frame " + due + ": its number says " + Long.toUnsignedString(number));
        }
        return (int) length;
    }

    /** CRC-32C of the first 16 bytes of the header, flag set, and then the payload. */
    static int sum(int length, long number, MemorySegment payload) {
        var crc = new CRC32C();
        var header = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        crc.update(header.putLong(firstWord(length, true)).putLong(number).flip());
        crc.update(payload.asByteBuffer());
        return (int) crc.getValue();
    }
}
