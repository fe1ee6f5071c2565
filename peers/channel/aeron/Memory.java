import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.concurrent.UnsafeBuffer;

/** The bytes of a message, in private memory. Contents and sums are computed as in two.h. */
final class Memory {
    private static final long PRIME = 1_099_511_628_211L;
    private static final long BASIS = 0xcbf29ce484222325L;
    private static final int PAGE = 4096;

    final UnsafeBuffer bytes;

    Memory(int length) {
        var room = ByteBuffer.allocateDirect(length + PAGE).alignedSlice(PAGE);
        bytes = new UnsafeBuffer(room, 0, length);
        bytes.setMemory(0, length, (byte) 1);
    }

    void number(long number) {
        bytes.putLong(0, number, ByteOrder.nativeOrder());
    }

    long number() {
        return bytes.getLong(0, ByteOrder.nativeOrder());
    }

    /** Fills the message with bytes that depend on their position and on `salt`. */
    void fill(long salt) {
        long word = salt * 0x9e3779b97f4a7c15L + 1;
        for (int at = 0; at < bytes.capacity(); at += Long.BYTES) {
            word ^= word << 13;
            word ^= word >>> 7;
            word ^= word << 17;
            for (int n = at; n < Math.min(at + Long.BYTES, bytes.capacity()); n++) {
                bytes.putByte(n, (byte) (word >>> (8 * (n - at))));
            }
        }
    }

    void clear() {
        bytes.setMemory(0, bytes.capacity(), (byte) 0);
    }

    /** Changes a byte, to test that a check finds the difference. */
    void spoil() {
        int last = bytes.capacity() - 1;
        bytes.putByte(last, (byte) (bytes.getByte(last) ^ 1));
    }

    /** Returns a sum that depends on every byte and its position. */
    long sum() {
        long sum = BASIS;
        for (int at = 0; at < bytes.capacity(); at += Long.BYTES) {
            long word = 0;
            for (int n = Math.min(at + Long.BYTES, bytes.capacity()) - 1; n >= at; n--) {
                word = word << 8 | bytes.getByte(n) & 0xff;
            }
            sum = fold(sum, word);
            sum ^= sum >>> 32;
        }
        return sum;
    }

    static long fold(long sum, long next) {
        return (sum ^ next) * PRIME;
    }
}
