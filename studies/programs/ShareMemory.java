import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.List;
import java.util.Random;

/**
 * Study 001 in Java, by the article's own loops: a mapped file, java.util.Random, and reset(). JDK 17 or later.
 *
 * <p>One operation is {@code writes} writes of one byte each at random places, or {@code clears} clearings of the buffer.
 */
final class ShareMemory extends Worker {
    private static final byte MARK = 0b01010101;
    private static final long SEED = 1;
    private static final List<String> ACTIONS = List.of("published", "generator", "put", "clear", "clear-reused");

    // As in the article, by its names.
    private final int mapSize;
    private final byte[] buff = new byte[1];
    private static final Random rand = new Random();
    private MappedByteBuffer mapBuf;

    private final String action;
    private final int writes;
    private final int clears;
    private final long warmup;
    private final boolean spoil;
    private final boolean fresh;
    private final File file;
    private FileChannel channel;
    private byte[] zeros;
    private long state = 88172645463325252L;
    private long sink;

    private ShareMemory(Parameters with) {
        super(new Tasks());
        long bytes = with.number("bytes", 1 << 16);
        action = with.choice("action", ACTIONS);
        writes = small("writes", with.number("writes", 100_000));
        clears = small("clears", with.number("clears", 1));
        warmup = with.number("warmup", 150);
        spoil = with.number("spoil", 0) != 0;
        fresh = with.number("fresh", 0) != 0;
        if (bytes < 8 || bytes > 1 << 30 || Long.bitCount(bytes) != 1) {
            throw new Unfit("bytes=" + bytes + ": it is to be a power of two, 8 to 2^30");
        }
        mapSize = (int) bytes;
        file = new File(with.text("scratch", "."), "mem-" + ProcessHandle.current().pid() + ".sm");
    }

    private static int small(String key, long number) {
        if (number < 1 || number > 1_000_000_000) {
            throw new Unfit(key + "=" + number + ": it is to be 1 to 10^9");
        }
        return (int) number;
    }

    // ---- the article's loops ----

    private void published() {
        byte to_write = MARK;
        for (int i = 0; i < writes; i++) {
            int pos = rand.nextInt(mapSize);
            mapBuf.position(pos);
            mapBuf.get(buff, 0, 1);

            buff[0] = to_write;
            mapBuf.position(pos);
            mapBuf.put(buff, 0, 1);
        }
    }

    private void reset() {
        mapBuf.position(0);
        mapBuf.put(new byte[mapSize], 0, mapSize);
    }

    // ---- the same with less ----

    private void generator() {
        long sum = 0;
        for (int i = 0; i < writes; i++) {
            sum += rand.nextInt(mapSize);
        }
        sink = sum;
    }

    /** The work of regions.c with action=xorshift. */
    private void put() {
        MappedByteBuffer to = mapBuf;
        long x = state;
        int mask = mapSize - 1;
        for (int i = 0; i < writes; i++) {
            x = next(x);
            to.put((int) x & mask, MARK);
        }
        state = x;
    }

    static long next(long x) {
        x ^= x << 13;
        x ^= x >>> 7;
        return x ^ x << 17;
    }

    private void operate() {
        switch (action) {
            case "published":
                published();
                break;
            case "generator":
                generator();
                break;
            case "put":
                put();
                break;
            case "clear":
                for (int i = 0; i < clears; i++) {
                    reset();
                }
                break;
            default:
                for (int i = 0; i < clears; i++) {
                    mapBuf.put(0, zeros, 0, mapSize);
                }
        }
    }

    // ---- what the lab asks for ----

    private boolean isClearing() {
        return action.startsWith("clear");
    }

    /** A new file's pages, or an array for every reset(): new heap, until the collector gives the old one back. */
    @Override
    boolean touchesFresh() {
        return fresh || action.equals("clear");
    }

    @Override
    void warm() throws Exception {
        needs(mapSize);
        if (fresh) {
            makeAsPublished();
            return;
        }
        try (var made = new RandomAccessFile(file, "rw")) {
            made.setLength(mapSize);
            channel = made.getChannel();
            mapBuf = channel.map(FileChannel.MapMode.READ_WRITE, 0, mapSize);
        }
        zeros = new byte[isClearing() ? mapSize : 1];
        fill((byte) 0);
        warmUp(warmup);
    }

    /** The article's file: written with zeros, then mapped; no page of the mapping is touched yet. */
    private void makeAsPublished() throws IOException {
        try (var made = new RandomAccessFile(file, "rw")) {
            channel = made.getChannel();
            var block = ByteBuffer.allocate(Math.min(mapSize, 1 << 20));
            for (long at = 0; at < mapSize; at += block.capacity()) {
                block.clear();
                while (block.hasRemaining()) {
                    channel.write(block, at + block.position());
                }
            }
            channel.force(false);
            mapBuf = channel.map(FileChannel.MapMode.READ_WRITE, 0, mapSize);
        }
    }

    /** Touches every page, without a call of what is measured. */
    private void fill(byte value) {
        for (int i = 0; i < mapSize; i += 8) {
            mapBuf.putLong(i, value * 0x0101010101010101L);
        }
    }

    @Override
    void run(long times, Cost cost) {
        Mark mark = begin();
        for (long n = 0; n < times; n++) {
            operate();
        }
        end(mark, cost);
        cost.bytes += times * (isClearing() ? (long) clears * mapSize : writes);
    }

    @Override
    String check() throws IOException {
        switch (action) {
            case "generator":
                operate();
                return sink > 0 ? null : "the generator made nothing";
            case "published":
            case "put":
                return lookAtPlaces();
            default:
                return lookAtAll();
        }
    }

    /** The places of an operation: erases what is there, or answers whether all hold the mark. */
    private boolean atPlaces(long before, boolean erase) {
        rand.setSeed(SEED);
        long x = before;
        boolean all = true;
        for (int i = 0; i < writes && all; i++) {
            x = next(x);
            int pos = action.equals("put") ? (int) x & mapSize - 1 : rand.nextInt(mapSize);
            if (erase) {
                mapBuf.put(pos, (byte) 0);
            } else {
                all = mapBuf.get(pos) == MARK;
            }
        }
        rand.setSeed(SEED);
        return all;
    }

    private String lookAtPlaces() throws IOException {
        long before = state;
        atPlaces(before, true);
        operate();
        if (spoil) {
            atPlaces(before, true);
        }
        if (!atPlaces(before, false)) {
            return "a place that was written does not hold what was written";
        }
        return fileHoldsAll() ? null : "the file does not hold what its mapping shows";
    }

    private String lookAtAll() throws IOException {
        fill((byte) 0xff);
        operate();
        if (spoil) {
            mapBuf.put(mapSize / 2, (byte) 1);
        }
        for (int i = 0; i < mapSize; i++) {
            if (mapBuf.get(i) != 0) {
                return "the cleared buffer holds bytes other than 0";
            }
        }
        return fileHoldsAll() ? null : "the file does not hold what its mapping shows";
    }

    /** The first bytes of the file, read through another descriptor, against those of the mapping. */
    private boolean fileHoldsAll() throws IOException {
        byte[] read = new byte[Math.min(mapSize, 1 << 20)];
        try (var again = new RandomAccessFile(file, "r")) {
            again.readFully(read);
        }
        return ByteBuffer.wrap(read).equals(mapBuf.duplicate().position(0).limit(read.length));
    }

    @Override
    void close() {
        file.delete();
    }

    public static void main(String[] words) throws Exception {
        var keys = List.of("action", "writes", "clears", "warmup", "spoil", "fresh", "bytes", "scratch");
        main(words, keys, ShareMemory::new);
    }
}
