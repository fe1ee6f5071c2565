package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;

/**
 * Dumps of memory files: lines of offset and bytes. Lines of zeros are left out, and the last line is the length alone.
 */
final class Dump {
    /** Directory of the golden vectors; the tests run in {@code java/}. */
    static final Path VECTORS = Path.of("../tests/vectors");

    private Dump() {}

    static byte[] read(String name) throws IOException {
        List<String> lines = Files.readAllLines(VECTORS.resolve(name));
        byte[] bytes = new byte[Integer.parseInt(lines.getLast(), 16)];
        for (String line : lines.subList(0, lines.size() - 1)) {
            String[] parts = line.split(" +", 2);
            byte[] part = HexFormat.ofDelimiter(" ").parseHex(parts[1]);
            System.arraycopy(part, 0, bytes, Integer.parseInt(parts[0], 16), part.length);
        }
        return bytes;
    }

    /** Returns the contents of a memory file, without the second mapping. */
    static byte[] of(Memory memory, Role role) {
        long size = memory.geometry.header() + memory.geometry.dataOf(role);
        return memory.bytes.asSlice(0, size).toArray(JAVA_BYTE);
    }

    /** Returns a dump without the values that differ between runs. */
    static byte[] golden(Memory memory, Role role, long epoch) {
        byte[] bytes = of(memory, role);
        ByteBuffer.wrap(bytes)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(32, epoch)
                .putInt(40, 0)
                .putLong(512, 0)
                .putLong(520, 0);
        return bytes;
    }
}
