package dev.thalweg;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import dev.thalweg.SharedMemory.Kind;

class MemoryOptionsTest {
    private static final int EPERM = 1;
    private static final int ENOMEM = 12;
    private static final int ENODEV = 19;
    private static final int EINVAL = 22;
    private static final int ENOSPC = 28;
    private static final Path OBJECTS = Path.of("/dev/shm");

    @TempDir
    Path folder;

    private final String object = "/thalweg-options-" + ProcessHandle.current().pid();

    private String nameFor(Kind kind) {
        return kind == Kind.FILE ? folder.resolve("memory").toString() : object;
    }

    @ParameterizedTest
    @EnumSource
    void permissionsAreThoseAskedForWhateverTheUmask(Kind kind) throws IOException {
        try (var owners = SharedMemory.create(kind, nameFor(kind), 4096)) {
            assertEquals("rw-------", permissions(owners));
        }
        for (var asked : List.of("rw-rw----", "rw-rw-rw-", "rw-r--r--")) {
            int bits = 0;
            for (char each : asked.toCharArray()) {
                bits = bits << 1 | (each == '-' ? 0 : 1);
            }
            try (var memory = SharedMemory.create(kind, nameFor(kind), 4096, MemoryOptions.USUAL.permitting(bits))) {
                assertEquals(asked, permissions(memory));
            }
        }
    }

    private static String permissions(SharedMemory memory) throws IOException {
        Path place = switch (memory.kind()) {
            case POSIX -> OBJECTS.resolve(memory.name().substring(1));
            case FILE, MEMFD -> Path.of(memory.name());
            case SYSV -> null;
        };
        if (place != null) {
            return PosixFilePermissions.toString(Files.getPosixFilePermissions(place));
        }
        for (String line : Files.readAllLines(Path.of("/proc/sysvipc/shm"))) {
            // The columns key, shmid and perms.
            String[] columns = line.strip().split("\\s+");
            if (columns[1].equals(memory.name())) {
                var words = new StringBuilder();
                int bits = Integer.parseInt(columns[2], 8);
                for (int at = 8; at >= 0; at--) {
                    words.append((bits >> at & 1) == 0 ? '-' : "xwr".charAt(at % 3));
                }
                return words.toString();
            }
        }
        throw new AssertionError("no segment " + memory.name());
    }

    @ParameterizedTest
    @EnumSource(names = {"POSIX", "MEMFD", "FILE"})
    void prewrittenMemoryHasEveryBlock(Kind kind) throws Exception {
        long size = (3 << 20) + 1;
        try (var memory = SharedMemory.create(kind, nameFor(kind), size)) {
            assertTrue(room(memory) < size, room(memory) + " bytes");
        }
        try (var memory = SharedMemory.create(kind, nameFor(kind), size, MemoryOptions.USUAL.prewritten())) {
            assertTrue(room(memory) >= size, room(memory) + " bytes");
            assertEquals(size, memory.size());
            assertEquals(-1, memory.segment().mismatch(java.lang.foreign.MemorySegment.ofArray(new byte[(int) size])));
        }
    }

    /** Returns the number of bytes that the file occupies on its file system. */
    private static long room(SharedMemory memory) throws Exception {
        String place = memory.kind() == Kind.POSIX ? OBJECTS + memory.name() : memory.name();
        var stat = new ProcessBuilder("stat", "-L", "-c", "%b", place).redirectErrorStream(true).start();
        String said = new String(stat.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        assertEquals(0, stat.waitFor(), said);
        return Long.parseLong(said) * 512;
    }

    @Test
    void moreThanThereIsRoomForIsToldAtOnceAndLeavesNothing() throws IOException {
        long all = Files.getFileStore(OBJECTS).getTotalSpace();
        if (all == 0 || !Files.getFileStore(OBJECTS).type().equals("tmpfs")) {
            Skips.skip("moreThanThereIsRoomForIsToldAtOnceAndLeavesNothing", "/dev/shm has no limit");
        }
        var refused = assertThrows(
                SystemCallException.class,
                () -> SharedMemory.create(Kind.POSIX, object, 2 * all, MemoryOptions.USUAL.prewritten()));
        assertEquals(ENOSPC, refused.errno());
        assertTrue(refused.getMessage().contains(object), refused.getMessage());
        assertTrue(Files.notExists(OBJECTS.resolve(object.substring(1))));
    }

    @ParameterizedTest
    @EnumSource(names = {"SYSV", "MEMFD"})
    void hugePagesAreGivenOrWhatIsMissingIsSaid(Kind kind) throws IOException {
        String test = "hugePagesAreGivenOrWhatIsMissingIsSaid(" + kind + ")";
        MemoryOptions options;
        try {
            options = MemoryOptions.USUAL.withHugePages();
        } catch (UnsupportedOperationException none) {
            Skips.skip(test, none.getMessage());
            return;
        }
        long page = options.hugePage();
        try (var memory = SharedMemory.create(kind, "thalweg-huge", page - 1, options);
                var other = SharedMemory.open(kind, memory.name())) {
            assertEquals(page, memory.size());
            assertEquals(page, other.size());
            assertTrue(ofMapping(memory, "KernelPageSize:").contains(" " + (page >> 10) + " kB"));
            memory.populate();
            memory.segment().set(JAVA_BYTE, page - 1, (byte) 7);
            assertEquals(7, other.segment().get(JAVA_BYTE, page - 1));
            memory.clear();
            assertEquals(0, other.segment().get(JAVA_BYTE, page - 1));
        } catch (SystemCallException refused) {
            String said = refused.getMessage();
            assertTrue(said.contains(kind + " memory of 1 huge pages of " + (page >> 10) + " KiB"), said);
            switch (refused.errno()) {
                case ENOMEM -> assertTrue(said.contains("0 of them free") && said.contains("/nr_hugepages"), said);
                case EPERM -> assertTrue(kind == Kind.SYSV && said.contains("hugetlb_shm_group"), said);
                default -> throw new AssertionError(said);
            }
            Skips.skip(test, "no huge page is to be had here, and that was told");
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"SYSV", "MEMFD"})
    void aSizeOfHugePagesThatTheKernelHasNotIsToldAsThat(Kind kind) {
        var refused = assertThrows(
                SystemCallException.class,
                () -> SharedMemory.create(kind, "thalweg-huge", 1, MemoryOptions.USUAL.withHugePages(1L << 40)));
        assertTrue(refused.errno() == (kind == Kind.SYSV ? EINVAL : ENODEV), refused.getMessage());
        assertTrue(refused.getMessage().contains("the supported sizes are in /sys/kernel/mm/hugepages"), refused.getMessage());
    }

    @ParameterizedTest
    @EnumSource
    void preferringHugePagesMarksTheMappingForThem(Kind kind) throws IOException {
        if (!Files.isDirectory(Path.of("/sys/kernel/mm/transparent_hugepage"))) {
            Skips.skip("preferringHugePagesMarksTheMappingForThem", "this kernel has no transparent huge pages");
        }
        try (var memory = SharedMemory.create(kind, nameFor(kind), 4 << 20)) {
            assertTrue(!ofMapping(memory, "VmFlags:").contains(" hg"));
            memory.preferHugePages();
            assertTrue(ofMapping(memory, "VmFlags:").contains(" hg"));
            memory.populate();
            memory.segment().set(JAVA_BYTE, memory.size() - 1, (byte) 7);
            assertEquals(0, memory.segment().get(JAVA_BYTE, 0));
        }
    }

    /** Returns the line of the mapping's description in /proc that begins with this prefix. */
    private static String ofMapping(SharedMemory memory, String line) throws IOException {
        String address = Long.toHexString(memory.segment().address()) + "-";
        boolean inside = false;
        for (String each : Files.readAllLines(Path.of("/proc/self/smaps"), StandardCharsets.ISO_8859_1)) {
            inside = each.matches("[0-9a-f]+-[0-9a-f]+ .*") ? each.startsWith(address) : inside;
            if (inside && each.startsWith(line)) {
                return each;
            }
        }
        throw new AssertionError("no mapping at " + address);
    }

    @Test
    void whatMakesNoSenseIsRefused() {
        var usual = MemoryOptions.USUAL;
        for (int permissions : new int[] {0, 0400, 0066, 0700, 01600}) {
            assertThrows(IllegalArgumentException.class, () -> usual.permitting(permissions));
        }
        for (long page : new long[] {-4096, 1, 4097}) {
            assertThrows(IllegalArgumentException.class, () -> usual.withHugePages(page));
        }
        for (Kind kind : new Kind[] {Kind.POSIX, Kind.FILE}) {
            assertThrows(
                    IllegalArgumentException.class,
                    () -> SharedMemory.create(kind, nameFor(kind), 1, usual.withHugePages(1 << 21)));
        }
        for (var options : List.of(usual.prewritten(), usual.withHugePages(1 << 21))) {
            assertThrows(
                    IllegalArgumentException.class,
                    () -> SharedMemory.create(Kind.SYSV, "", options.written() ? 1 : Long.MAX_VALUE, options));
        }
        assertThrows(
                IllegalArgumentException.class,
                () -> SharedMemory.create(Kind.MEMFD, "both", 1, usual.prewritten().withHugePages(1 << 21)));
    }
}
