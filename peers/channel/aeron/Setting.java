import java.nio.file.Path;
import java.util.List;

/** The parameters, and the sizes of Aeron's log that follow from them. */
record Setting(boolean pingPong, boolean invoker, boolean pinned, boolean spoil, int bytes, Path folder) {
    static final long WARM_UP_NS = 1_500_000_000;
    /** Number of messages that are compared byte by byte. */
    static final int CHECKED = 16;
    /** Largest message that Aeron can send. */
    private static final int MOST = 16 << 20;

    private static final int TERMS = 3;

    static Setting of(Worker.Parameters words) {
        boolean pingPong = words.choice("job", List.of("ping-pong", "stream")).equals("ping-pong");
        boolean invoker = words.choice("driver", List.of("invoker", "shared")).equals("invoker");
        words.choice("side", List.of("sender", "receiver"));
        long bytes = words.number("bytes", 64);
        if (bytes < Long.BYTES || bytes > MOST) {
            throw new Worker.Unfit("bytes=" + bytes + ": a message of Aeron has 8 bytes here at least, 2^24 at most");
        }
        String own = "aeron-" + ProcessHandle.current().pid();
        var folder = Path.of(words.text("folder", Path.of(words.text("scratch", "."), own).toString()));
        boolean pinned = words.number("pin", 0) != 0;
        boolean spoil = words.number("spoil", 0) != 0;
        return new Setting(pingPong, invoker, pinned, spoil, (int) bytes, folder.toAbsolutePath());
    }

    /** Maximum number of bytes in flight: 1 MiB, but at least four messages, as in the other peers. */
    int window() {
        return Math.max(1 << 20, 4 * bytes);
    }

    /** Size of a term: a power of two, with room for two windows and eight messages. A small term stays in
     * the caches. */
    int termLength() {
        int least = Math.max(2 * window(), 8 * bytes);
        return least == Integer.highestOneBit(least) ? least : 2 * Integer.highestOneBit(least);
    }

    long logLength() {
        return (long) TERMS * termLength();
    }
}
