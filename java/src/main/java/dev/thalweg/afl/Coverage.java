package dev.thalweg.afl;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

import dev.thalweg.SharedMemory;

/**
 * The map of executed edges: AFL++'s shared memory under the fuzzer, otherwise private memory.
 *
 * <p>Counters wrap and are not atomic, as in AFL++'s own instrumentation. The fuzzer clears the map.
 */
public final class Coverage {
    /** The default size, as in AFL++. The system property {@code thalweg.afl.map} overrides it. */
    static final int USUAL_SIZE = 1 << 16;
    /** Maximum size that the fork server's greeting can express (config.h, FS_OPT_MAX_MAPSIZE). */
    private static final int LARGEST = 1 << 23;

    private static final int MASK = size() - 1;
    // The segment is static, final and never unmapped, so the JVM removes the checks of base, bounds and liveness.
    private static final MemorySegment MAP = map();
    private static int previous;

    private Coverage() {}

    /**
     * Counts the edge from the previous place to this one.
     *
     * @param place number of the place, equal in every run; a hash, so that edges spread over the map
     */
    public static void hit(int place) {
        long at = (place ^ previous) & MASK;
        MAP.set(ValueLayout.JAVA_BYTE, at, (byte) (MAP.get(ValueLayout.JAVA_BYTE, at) + 1));
        previous = place >>> 1;
    }

    /** Starts a run: the first edge has no previous place. */
    static void begin() {
        previous = 0;
    }

    /** Lets the JVM compile {@link #hit}, then restores the map. The fuzzer must not read the map during this call. */
    static void warmUp(int times) {
        byte before = MAP.get(ValueLayout.JAVA_BYTE, 0);
        for (int turn = 0; turn < times; turn++) {
            previous = 0;
            hit(0);
        }
        MAP.set(ValueLayout.JAVA_BYTE, 0, before);
        begin();
    }

    /**
     * Returns the number of counters in the map.
     *
     * @return a power of two
     */
    public static int size() {
        int size = Integer.getInteger("thalweg.afl.map", USUAL_SIZE);
        if (size < 64 || size > LARGEST || Integer.bitCount(size) != 1) {
            throw new IllegalArgumentException(
                    "thalweg.afl.map=" + size + " is not a power of two from 64 to " + LARGEST);
        }
        return size;
    }

    /**
     * Returns the count of an edge, modulo 256.
     *
     * @param at index in the map
     * @return the counter
     */
    static int count(int at) {
        return MAP.get(ValueLayout.JAVA_BYTE, at) & 0xff;
    }

    private static MemorySegment map() {
        String id = System.getenv("__AFL_SHM_ID");
        if (id == null) {
            return Arena.global().allocate(size());
        }
        try {
            var attached = fuzzersMemory(id);
            if (attached.size() < size()) {
                throw new IllegalStateException("the fuzzer's map has " + attached.size() + " counters and "
                        + size() + " are required: set AFL_MAP_SIZE=" + size() + " for it");
            }
            return attached.globalSegment().asSlice(0, size());
        } catch (IOException failure) {
            throw new IllegalStateException("cannot attach the fuzzer's map, __AFL_SHM_ID=" + id, failure);
        }
    }

    /**
     * Opens memory of the fuzzer.
     *
     * @param name the id of a System V segment, or, if AFL++ was built with {@code USEMMAP}, a name that begins with a slash
     * @return the memory
     * @throws IOException if it cannot be opened
     */
    static SharedMemory fuzzersMemory(String name) throws IOException {
        return SharedMemory.open(name.startsWith("/") ? SharedMemory.Kind.POSIX : SharedMemory.Kind.SYSV, name);
    }
}
