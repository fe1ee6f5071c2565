package dev.thalweg.ring;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * A frame: a header of 32 bytes, the payload, and padding up to a multiple of 64. The header is parsed from words that
 * were copied once: length, kind and flags in the first, the number in the second, the checksum in the third.
 */
final class Frame {
    /** Size of the header in bytes. */
    static final int HEADER = 32;

    private static final long MESSAGE = 1L << 32;
    private static final long SUMMED = 1L << 48;
    private static final long LENGTH = 0xffff_ffffL;

    private Frame() {}

    /** Returns the number of bytes of the ring that a payload and its header occupy. */
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
     * Returns the payload length of a frame. {@code room} is the number of committed bytes from the start of the frame,
     * and {@code due} is the expected number of the frame.
     */
    static int parse(long first, long number, long room, long due) throws RingException.Corrupt {
        if ((first & ~SUMMED & ~LENGTH) != MESSAGE) {
            throw new RingException.Corrupt(
                    "frame " + due + ": unknown kind " + (first >>> 32 & 0xffff) + " or flags " + (first >>> 48));
        }
        long length = first & LENGTH;
        if (occupied(length) > room) {
            throw new RingException.Corrupt(
                    "frame " + due + ": " + length + " bytes of payload do not fit in " + room + " committed bytes");
        }
        if (number != due) {
            throw new RingException.Corrupt(
                    "frame " + due + ": its header has the sequence number " + Long.toUnsignedString(number));
        }
        return (int) length;
    }

    /** Returns the CRC-32C of the first 16 bytes of the header, with the flag set, and the payload. */
    static int sum(int length, long number, MemorySegment payload) {
        var crc = new CRC32C();
        var header = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        crc.update(header.putLong(firstWord(length, true)).putLong(number).flip());
        crc.update(payload.asByteBuffer());
        return (int) crc.getValue();
    }
}
