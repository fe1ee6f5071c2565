package dev.thalweg;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import dev.thalweg.SharedMemory.Kind;

/** Memory that was not closed. No other test runs at the same time, because it could reuse the number of a descriptor. */
@Isolated
class LostMemoryTest {
    @TempDir
    Path folder;

    private String nameFor(Kind kind) {
        return kind == Kind.FILE ? folder.resolve("lost").toString() : "/thalweg-lost-" + ProcessHandle.current().pid();
    }

    @ParameterizedTest
    @EnumSource
    void theCleanerGivesBackTheMappingTheDescriptorAndTheName(Kind kind) throws IOException {
        var memory = SharedMemory.create(kind, nameFor(kind), 4096);
        assertTrue(isMapped(memory, nameFor(kind)));
        assertEquals(kind == Kind.SYSV ? 0 : 1, descriptors(nameFor(kind)));
        // Runs the cleaner's action, which the garbage collector normally triggers.
        memory.cleanable.clean();
        assertFalse(isMapped(memory, nameFor(kind)));
        assertEquals(0, descriptors(nameFor(kind)));
        assertThrows(IOException.class, () -> SharedMemory.open(kind, memory.name()));
        // Checks that nothing is released twice, because the new memory may have reused the address and the descriptor.
        try (var next = SharedMemory.create(kind, nameFor(kind), 4096)) {
            memory.cleanable.clean();
            memory.close();
            next.segment().set(JAVA_BYTE, 0, (byte) 7);
            try (var other = SharedMemory.open(kind, next.name())) {
                assertEquals(7, other.segment().get(JAVA_BYTE, 0));
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void whoOnlyJoinedLeavesTheName(Kind kind) throws IOException {
        try (var made = SharedMemory.create(kind, nameFor(kind), 4096)) {
            var joined = SharedMemory.open(kind, made.name());
            joined.cleanable.clean();
            SharedMemory.open(kind, made.name()).close();
            joined.close();
        }
    }

    @Test
    void theCollectorHasItGivenBackWhenNobodyCanReachItAndNotBefore() throws IOException {
        MemorySegment part = partOf("thalweg-kept");
        part.set(JAVA_BYTE, 0, (byte) 7);
        partOf("thalweg-dropped");
        collectUntilGone("thalweg-dropped");
        assertTrue(isMapped("thalweg-kept"));
        assertEquals(7, part.get(JAVA_BYTE, 0));
        var buffer = part.asByteBuffer();
        part = null;
        partOf("thalweg-dropped");
        collectUntilGone("thalweg-dropped");
        assertEquals(7, buffer.get(0));
        buffer = null;
        collectUntilGone("thalweg-kept");
    }

    /** Creates memory and returns only a slice, so that nothing else refers to the memory. */
    private static MemorySegment partOf(String label) throws IOException {
        var memory = SharedMemory.create(Kind.MEMFD, label, 4096);
        assertTrue(isMapped(label));
        return memory.segment().asSlice(4000, 1);
    }

    private static void collectUntilGone(String label) throws IOException {
        for (int turn = 0; turn < 1000; turn++) {
            System.gc();
            if (!isMapped(label)) {
                return;
            }
        }
        throw new AssertionError(label + " is still mapped");
    }

    @ParameterizedTest
    @EnumSource
    void afterClosingNothingIsDoneToWhatMayBeAnothers(Kind kind) throws IOException {
        var memory = SharedMemory.create(kind, nameFor(kind), 4096);
        memory.close();
        assertThrows(IllegalStateException.class, memory::populate);
        assertThrows(IllegalStateException.class, memory::preferHugePages);
        if (kind == Kind.MEMFD) {
            assertThrows(IllegalStateException.class, memory::seal);
        }
    }

    /** Finds a System V segment by its number, and other memory by its name or label at the end of the line. */
    private static boolean isMapped(SharedMemory memory, String label) throws IOException {
        return memory.kind() == Kind.SYSV
                ? maps().anyMatch(line -> line.contains("/SYSV") && line.split("\\s+")[4].equals(memory.name()))
                : isMapped(label);
    }

    private static boolean isMapped(String label) throws IOException {
        return maps().anyMatch(line -> line.contains(label));
    }

    private static Stream<String> maps() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/maps"), StandardCharsets.ISO_8859_1).stream();
    }

    private static long descriptors(String label) throws IOException {
        long count = 0;
        try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
            for (Path each : all.toList()) {
                try {
                    count += Files.readSymbolicLink(each).toString().contains(label) ? 1 : 0;
                } catch (IOException closed) {
                    // Ignores the descriptor of the directory stream, which is closed by now.
                }
            }
        }
        return count;
    }
}
