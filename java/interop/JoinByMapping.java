import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32C;

/**
 * One end of a message ring on JDK 17, with the class library only. Both memory files are mapped through the paths that
 * a helper provides ({@code /proc/PID/fd/N}). The helper also performs the handshake, because the class library cannot
 * receive descriptors. The program follows docs/reference/formats.md, and uses no code of this repository.
 *
 * <pre>{@code java JoinByMapping.java produce|consume OWN COUNT EPOCH CAPACITY CHECKSUMS}</pre>
 *
 * <p>Maps OWN for writing, writes its page and prints {@code mapped}. The helper may then seal the file, and answers
 * with the path of the other side's file. Then sends or checks COUNT messages. The other side must poll (spin), because
 * this program cannot wake it.
 */
public final class JoinByMapping {
    private static final int CURSOR = 128;
    private static final int CLOSED = 528;
    private static final int FRAME = 32;
    private static final int[] ODD = {0, 1, 4095, 4097, 32, 33};
    private static final long PATIENCE_NANOS = 120_000_000_000L;
    private static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INT = MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private final boolean produces;
    private final int count;
    private final int capacity;
    private final boolean checksums;
    private final ByteBuffer own;
    private final ByteBuffer other;
    private final int header;

    private JoinByMapping(String[] told) throws IOException {
        produces = told[0].equals("produce");
        count = Integer.parseInt(told[2]);
        capacity = Integer.parseInt(told[4]);
        checksums = told[5].equals("true");
        own = map(told[1], true);
        header = own.capacity() - (produces ? capacity : 0);
        own.put(0, (produces ? "THALWEGR" : "THALWEGC").getBytes())
                .putInt(8, 1)
                .putInt(12, header)
                .putLong(16, capacity)
                .putInt(24, 64)
                .putInt(28, checksums ? 1 : 0)
                .putLong(32, Long.parseUnsignedLong(told[3]))
                .putInt(40, (int) ProcessHandle.current().pid());
        System.out.println("mapped");
        other = map(new BufferedReader(new InputStreamReader(System.in)).readLine(), false);
        System.out.println("joined");
    }

    public static void main(String[] told) throws IOException {
        var end = new JoinByMapping(told);
        if (end.produces) {
            end.produce();
        } else {
            end.consume();
        }
        INT.setRelease(end.own, CLOSED, 1);
        System.out.println("done " + end.count);
    }

    private static ByteBuffer map(String path, boolean writes) throws IOException {
        var options = writes
                ? new StandardOpenOption[] {StandardOpenOption.READ, StandardOpenOption.WRITE}
                : new StandardOpenOption[] {StandardOpenOption.READ};
        try (var channel = FileChannel.open(Path.of(path), options)) {
            var mode = writes ? FileChannel.MapMode.READ_WRITE : FileChannel.MapMode.READ_ONLY;
            return channel.map(mode, 0, channel.size()).order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    private void produce() {
        long head = 0;
        for (int seq = 0; seq < count; seq++) {
            byte[] message = message(seq);
            long size = FRAME + message.length + 63 & -64;
            await(seq, head + size - capacity);
            int at = header + (int) (head % capacity);
            own.putInt(at, message.length).putInt(at + 4, 1 | (checksums ? 1 << 16 : 0)).putLong(at + 8, seq);
            own.putInt(at + 16, 0).putInt(at + 20, 0).putLong(at + 24, 0);
            if (checksums) {
                own.putInt(at + 16, sum(own, at, message));
            }
            move(own, head + FRAME, message, true);
            head += size;
            LONG.setRelease(own, CURSOR, head);
        }
        await(count, head);
    }

    private void consume() {
        long tail = 0;
        for (int seq = 0; seq < count; seq++) {
            await(seq, tail + 1);
            int at = header + (int) (tail % capacity);
            byte[] message = new byte[other.getInt(at)];
            move(other, tail + FRAME, message, false);
            check(seq, java.util.Arrays.equals(message, message(seq)) && other.getLong(at + 8) == seq);
            check(seq, !checksums || other.getInt(at + 16) == sum(other, at, message));
            tail += FRAME + message.length + 63 & -64;
            LONG.setRelease(own, CURSOR, tail);
        }
    }

    /** Waits until the other side's cursor has reached a position. */
    private void await(int seq, long position) {
        long end = System.nanoTime() + PATIENCE_NANOS;
        while ((long) LONG.getAcquire(other, CURSOR) < position) {
            Thread.yield();
            if (System.nanoTime() > end) {
                throw new IllegalStateException("nothing came of message " + seq);
            }
        }
    }

    /** Copies bytes into or out of the ring's data. Bytes after the end of the data continue at its beginning. */
    private void move(ByteBuffer side, long position, byte[] bytes, boolean in) {
        int from = (int) (position % capacity);
        int first = Math.min(bytes.length, capacity - from);
        if (in) {
            side.put(header + from, bytes, 0, first).put(header, bytes, first, bytes.length - first);
        } else {
            side.get(header + from, bytes, 0, first).get(header, bytes, first, bytes.length - first);
        }
    }

    private static int sum(ByteBuffer side, int at, byte[] payload) {
        var crc = new CRC32C();
        crc.update(side.duplicate().limit(at + 16).position(at));
        crc.update(payload);
        return (int) crc.getValue();
    }

    private static void check(int seq, boolean fine) {
        if (!fine) {
            throw new IllegalStateException("message " + seq + " is torn");
        }
    }

    /** Returns message {@code seq} of the tests, as {@code message} in crates/testing. */
    private static byte[] message(long seq) {
        long[] state = {(seq + 1) * 0x9e3779b97f4a7c15L | 1};
        long at = below(state, 20);
        byte[] bytes = new byte[at < ODD.length ? ODD[(int) at] : (int) below(state, 2000)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (seq * 31 ^ i * 7L ^ i >> 8);
        }
        return bytes;
    }

    private static long below(long[] state, long most) {
        long next = state[0];
        next ^= next >>> 12;
        next ^= next << 25;
        next ^= next >>> 27;
        state[0] = next;
        return (next * 0x2545f4914f6cdd1dL >>> 33) % most;
    }
}
