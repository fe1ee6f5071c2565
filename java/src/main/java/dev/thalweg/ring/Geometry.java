package dev.thalweg.ring;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

import dev.thalweg.internal.Libc;

/**
 * The fixed fields of a page, as defined in {@code docs/reference/formats.md}. Parses private copies only, which the
 * peer cannot change.
 *
 * @param header    number of bytes before the data
 * @param capacity  number of bytes of data, a power of two
 * @param checksums true if the producer writes checksums
 * @param epoch     a random number that identifies the ring
 * @param process   process id of the owner, for dumps
 */
record Geometry(int header, long capacity, boolean checksums, long epoch, int process) {
    /** Version of the formats in this package, which rejects all others. */
    static final int VERSION = 1;
    /** Frames begin at multiples of this number. */
    static final int ALIGN = 64;
    static final long MOST_CAPACITY = 1 << 30;
    /** The largest page size of the supported processors, because a header has one page. */
    static final int MOST_HEADER = 1 << 16;
    /** Size of the used fixed fields in bytes. */
    static final int LENGTH = 44;

    private static final int SC_PAGESIZE = 30;
    private static final int PAGE = (int) Libc.SYSCONF.attempt(SC_PAGESIZE);

    /** Returns the geometry of a new ring. */
    static Geometry of(Options options, long epoch) throws RingException.TooLarge {
        long least = Math.max(options.capacity(), PAGE);
        if (least > MOST_CAPACITY) {
            throw new RingException.TooLarge(options.capacity(), MOST_CAPACITY);
        }
        long capacity = Long.highestOneBit(2 * least - 1);
        return new Geometry(PAGE, capacity, options.checksums(), epoch, self());
    }

    /** Returns a copy with the id of this process. */
    Geometry ours() {
        return new Geometry(header, capacity, checksums, epoch, self());
    }

    /** Returns true if the other geometry belongs to this ring. */
    boolean agreesWith(Geometry other) {
        return header == other.header
                && capacity == other.capacity
                && checksums == other.checksums
                && epoch == other.epoch;
    }

    /** Returns the size of the data in bytes; 0 for the consumer. */
    long dataOf(Role role) {
        return role == Role.PRODUCER ? capacity : 0;
    }

    byte[] toBytes(Role role) {
        return ByteBuffer.allocate(LENGTH)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(role.magic())
                .putInt(VERSION)
                .putInt(header)
                .putLong(capacity)
                .putInt(ALIGN)
                .putInt(checksums ? 1 : 0)
                .putLong(epoch)
                .putInt(process)
                .array();
    }

    static Geometry parse(byte[] page, Role role) throws RingException.Corrupt {
        if (page.length < LENGTH) {
            throw new RingException.Corrupt("the header page has " + page.length + " bytes, but at least " + LENGTH
                    + " are required");
        }
        byte[] magic = Arrays.copyOf(page, 8);
        if (!Arrays.equals(magic, role.magic())) {
            throw new RingException.Corrupt("magic " + Arrays.toString(magic) + " is not that of a " + role);
        }
        var fields = ByteBuffer.wrap(page).order(ByteOrder.LITTLE_ENDIAN).position(8);
        int version = fields.getInt();
        if (version != VERSION) {
            throw new RingException.Corrupt("version " + version + " is not supported, only " + VERSION);
        }
        int header = fields.getInt();
        long capacity = fields.getLong();
        int align = fields.getInt();
        int flags = fields.getInt();
        if (align != ALIGN || (flags & ~1) != 0) {
            throw new RingException.Corrupt("invalid align " + align + " or flags " + flags);
        }
        var geometry = new Geometry(header, capacity, flags == 1, fields.getLong(), fields.getInt());
        geometry.check();
        return geometry;
    }

    private void check() throws RingException.Corrupt {
        if (header < PAGE || header < Page.LENGTH || header > MOST_HEADER || Integer.bitCount(header) != 1) {
            throw new RingException.Corrupt("header_len " + Integer.toUnsignedString(header)
                    + " is not a power of two between " + PAGE + " and " + MOST_HEADER);
        }
        if (capacity < PAGE || capacity > MOST_CAPACITY || Long.bitCount(capacity) != 1) {
            throw new RingException.Corrupt("capacity " + Long.toUnsignedString(capacity)
                    + " is not a power of two between " + PAGE + " and " + MOST_CAPACITY);
        }
    }

    private static int self() {
        return (int) ProcessHandle.current().pid();
    }
}
