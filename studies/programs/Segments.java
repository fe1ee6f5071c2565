import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.List;
import java.util.Locale;

import dev.thalweg.SharedMemory;
import dev.thalweg.internal.Libc;

/**
 * Study 001 in Java, through foreign memory: the work of regions.c on memory that SharedMemory of dev.thalweg made.
 *
 * <p>One operation is {@code writes} writes of one byte each at random places, or one clearing of the memory.
 */
final class Segments extends Worker {
    private static final byte MARK = 0b01010101;
    private static final VarHandle BYTE = ValueLayout.JAVA_BYTE.varHandle();
    private static final int IPC_RMID = 0;

    private final SharedMemory.Kind kind;
    private final String action;
    private final int writes;
    private final long bytes;
    private final long warmup;
    private final boolean spoil;
    private final String path;
    private SharedMemory memory;
    private long state = 88172645463325252L;
    private long sink;

    private Segments(Parameters with) {
        super(new Native());
        kind = SharedMemory.Kind.valueOf(
                with.choice("kind", List.of("file", "sysv", "posix", "memfd")).toUpperCase(Locale.ROOT));
        action = with.choice("action", List.of("set", "opaque", "release", "alone", "clear", "fill"));
        writes = (int) Math.max(1, Math.min(with.number("writes", 100_000), 1_000_000_000));
        bytes = with.number("bytes", 1 << 16);
        warmup = with.number("warmup", 150);
        spoil = with.number("spoil", 0) != 0;
        if (bytes < 8 || bytes > 1L << 40 || Long.bitCount(bytes) != 1) {
            throw new Unfit("bytes=" + bytes + ": it is to be a power of two, 8 to 2^40");
        }
        path = with.text("scratch", ".") + "/segment-" + ProcessHandle.current().pid();
    }

    private void set() {
        MemorySegment to = memory.segment();
        long x = state;
        long mask = bytes - 1;
        for (int i = 0; i < writes; i++) {
            x = ShareMemory.next(x);
            to.set(ValueLayout.JAVA_BYTE, x & mask, MARK);
        }
        state = x;
    }

    private void setOpaque() {
        MemorySegment to = memory.segment();
        long x = state;
        long mask = bytes - 1;
        for (int i = 0; i < writes; i++) {
            x = ShareMemory.next(x);
            BYTE.setOpaque(to, x & mask, MARK);
        }
        state = x;
    }

    private void setRelease() {
        MemorySegment to = memory.segment();
        long x = state;
        long mask = bytes - 1;
        for (int i = 0; i < writes; i++) {
            x = ShareMemory.next(x);
            BYTE.setRelease(to, x & mask, MARK);
        }
        state = x;
    }

    /** The generator of the others, and nothing written. */
    private void alone() {
        long x = state;
        long mask = bytes - 1;
        long sum = 0;
        for (int i = 0; i < writes; i++) {
            x = ShareMemory.next(x);
            sum += x & mask;
        }
        state = x;
        sink = sum;
    }

    private void operate() {
        switch (action) {
            case "alone" -> alone();
            case "set" -> set();
            case "opaque" -> setOpaque();
            case "release" -> setRelease();
            case "clear" -> memory.clear();
            default -> memory.segment().fill((byte) 0);
        }
    }

    private boolean isClearing() {
        return action.equals("clear") || action.equals("fill");
    }

    @Override
    void warm() throws Exception {
        needs(bytes);
        try {
            memory = SharedMemory.create(kind, kind == SharedMemory.Kind.FILE ? path : "/thalweg-"
                    + ProcessHandle.current().pid(), bytes);
        } catch (IOException refused) {
            throw new Unfit(refused.getMessage());
        }
        forgetName();
        touch((byte) 0);
        warmUp(warmup);
    }

    /** What has a name would outlive a JVM that is killed: it is to go with its last user. */
    private void forgetName() {
        try (Arena arena = Arena.ofConfined()) {
            switch (kind) {
                case SYSV -> Libc.SHMCTL.attempt(Integer.parseInt(memory.name()), IPC_RMID, MemorySegment.NULL);
                case POSIX -> Libc.SHM_UNLINK.attempt(arena.allocateFrom(memory.name()));
                default -> {}
            }
        }
    }

    /** Writes every page, without a call of what is measured. */
    private void touch(byte value) {
        for (long at = 0; at < bytes; at += 8) {
            memory.segment().set(ValueLayout.JAVA_LONG, at, value * 0x0101010101010101L);
        }
    }

    @Override
    void run(long times, Cost cost) {
        Mark mark = begin();
        for (long n = 0; n < times; n++) {
            operate();
        }
        end(mark, cost);
        cost.bytes += times * (isClearing() ? bytes : writes);
    }

    @Override
    String check() throws IOException {
        long before = state;
        if (action.equals("alone")) {
            return null;
        }
        if (isClearing()) {
            touch((byte) 0xff);
        } else {
            atPlaces(before, true);
        }
        operate();
        if (spoil) {
            memory.segment().set(ValueLayout.JAVA_BYTE, ShareMemory.next(before) & bytes - 1, (byte) 1);
        }
        String wrong = isClearing() ? lookAtAll() : atPlaces(before, false);
        return wrong == null ? lookAtFile() : wrong;
    }

    /** Erases the places of an operation, or looks at them. */
    private String atPlaces(long before, boolean erase) {
        long x = before;
        for (int i = 0; i < writes; i++) {
            x = ShareMemory.next(x);
            if (erase) {
                memory.segment().set(ValueLayout.JAVA_BYTE, x & bytes - 1, (byte) 0);
            } else if (memory.segment().get(ValueLayout.JAVA_BYTE, x & bytes - 1) != MARK) {
                return "a place that was written does not hold what was written";
            }
        }
        return null;
    }

    private String lookAtAll() {
        for (long at = 0; at < bytes; at += 8) {
            if (memory.segment().get(ValueLayout.JAVA_LONG, at) != 0) {
                return "the cleared memory holds bytes other than 0";
            }
        }
        return null;
    }

    /** The first bytes of what lies behind the mapping, where it can be read. */
    private String lookAtFile() throws IOException {
        if (kind == SharedMemory.Kind.SYSV || kind == SharedMemory.Kind.POSIX) {
            return null;
        }
        byte[] read = new byte[(int) Math.min(bytes, 1 << 20)];
        try (var file = new RandomAccessFile(memory.name(), "r")) {
            file.readFully(read);
        }
        boolean same = memory.segment().asSlice(0, read.length).mismatch(MemorySegment.ofArray(read)) < 0;
        return same ? null : "the file does not hold what its mapping shows";
    }

    @Override
    void close() {
        if (memory != null) {
            memory.close();
        }
    }

    public static void main(String[] words) throws Exception {
        var keys = List.of("kind", "action", "writes", "warmup", "spoil", "bytes", "scratch");
        main(words, keys, Segments::new);
    }
}
