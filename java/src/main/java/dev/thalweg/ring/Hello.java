package dev.thalweg.ring;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A handshake message.
 *
 * @param kind   type of the message
 * @param epoch  epoch of the ring; 0 in an Ask, and if no epoch is known
 * @param reason reason of a Refuse; otherwise 0
 */
record Hello(Kind kind, long epoch, int reason) {
    /** Types of messages, in the order of their numbers from 1. */
    enum Kind {
        OFFER,
        ASK,
        ACCEPT,
        READY,
        REFUSE
    }

    /** Size of a message in bytes. */
    static final int LENGTH = 64;

    /** Reasons of a refusal. */
    static final int OTHER = 0;
    static final int TAKEN = 1;
    static final int SAME_ROLE = 2;
    static final int MEMORY = 3;

    private static final byte[] MAGIC = "THALWEGH".getBytes(StandardCharsets.US_ASCII);

    Hello(Kind kind, long epoch) {
        this(kind, epoch, 0);
    }

    byte[] toBytes() {
        return ByteBuffer.allocate(LENGTH)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(MAGIC)
                .putInt(Geometry.VERSION)
                .putInt(kind.ordinal() + 1)
                .putLong(epoch)
                .putInt(reason)
                .array();
    }

    static Hello parse(byte[] bytes) throws RingException.Corrupt {
        if (bytes.length != LENGTH || !Arrays.equals(Arrays.copyOf(bytes, 8), MAGIC)) {
            throw new RingException.Corrupt("invalid handshake message of " + bytes.length + " bytes");
        }
        var fields = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).position(8);
        int version = fields.getInt();
        if (version != Geometry.VERSION) {
            throw new RingException.Corrupt("handshake version " + version + " is not supported, only " + Geometry.VERSION);
        }
        int kind = fields.getInt();
        if (kind < 1 || kind > Kind.values().length) {
            throw new RingException.Corrupt("unknown kind " + kind + " of handshake message");
        }
        return new Hello(Kind.values()[kind - 1], fields.getLong(), fields.getInt());
    }

    /** Returns the peer's reason as text. */
    String refusal() {
        return switch (reason) {
            case TAKEN -> "the peer's ring has a consumer already";
            case SAME_ROLE -> "both ends have the same role; one must produce and one consume";
            case MEMORY -> "the memory of this process lacks seals that the peer requires";
            default -> "the peer refused";
        };
    }
}
