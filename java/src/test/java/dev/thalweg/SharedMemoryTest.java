package dev.thalweg;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import dev.thalweg.SharedMemory.Kind;

class SharedMemoryTest {
    private static final int ENOENT = 2;
    private static final int EEXIST = 17;

    @TempDir
    Path folder;

    private String nameFor(Kind kind) {
        return kind == Kind.FILE ? folder.resolve("memory").toString() : "/thalweg-test-" + ProcessHandle.current().pid();
    }

    @ParameterizedTest
    @EnumSource
    void twoMappingsShareEveryByte(Kind kind) throws IOException {
        try (var one = SharedMemory.create(kind, nameFor(kind), 100_001);
                var other = SharedMemory.open(kind, one.name())) {
            assertEquals(100_001, other.size());
            for (long at = 0; at < one.size(); at++) {
                assertEquals(0, one.segment().get(JAVA_BYTE, at));
            }
            one.segment().set(JAVA_BYTE, 100_000, (byte) 7);
            assertEquals(7, other.segment().get(JAVA_BYTE, 100_000));
            other.clear();
            assertEquals(0, one.segment().get(JAVA_BYTE, 100_000));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"POSIX", "FILE", "MEMFD"})
    void clearingMemoryThatWasTruncatedIsAnError(Kind kind) throws IOException {
        try (var memory = SharedMemory.create(kind, nameFor(kind), 1 << 20)) {
            try (var file = FileChannel.open(fileOf(memory), StandardOpenOption.WRITE)) {
                file.truncate(4096);
            }
            assertThrows(InternalError.class, memory::clear);
            if (kind == Kind.MEMFD) {
                // The seal comes too late: the pages are already lost.
                memory.seal();
                assertThrows(InternalError.class, memory::clear);
            }
        }
    }

    @Test
    void sealedMemoryIsCleared() throws IOException {
        try (var memory = SharedMemory.create(Kind.MEMFD, "sealed", 1 << 20)) {
            memory.seal();
            memory.segment().fill((byte) 0xff);
            memory.clear();
            assertEquals(-1, memory.segment().mismatch(MemorySegment.ofArray(new byte[1 << 20])));
        }
    }

    @Test
    void clearingAMissingPageThatTheKernelCannotProvideIsAnError() throws IOException {
        try (var memory = SharedMemory.create(Kind.MEMFD, "missing", 1 << 20)) {
            // No process can take away the pages of sealed memory, but the kernel allocates each page at the first access.
            memory.seal();
            try (var _ = RefusedPages.of(memory.segment())) {
                assertThrows(InternalError.class, memory::clear);
            }
            memory.clear();
        }
    }

    private static Path fileOf(SharedMemory memory) {
        return memory.kind() == Kind.POSIX ? Path.of("/dev/shm" + memory.name()) : Path.of(memory.name());
    }

    @ParameterizedTest
    @ValueSource(strings = {"\0", "\0evil", "/\0", "\ud800", "\udc00/x"})
    void aNameThatCWouldReadOtherwiseIsRefused(String end) throws IOException {
        try (var memory = SharedMemory.create(Kind.POSIX, nameFor(Kind.POSIX), 4096);
                var file = SharedMemory.create(Kind.FILE, nameFor(Kind.FILE), 4096)) {
            for (var there : List.of(memory, file)) {
                assertThrows(IllegalArgumentException.class, () -> SharedMemory.open(there.kind(), there.name() + end));
            }
            for (Kind kind : List.of(Kind.POSIX, Kind.FILE, Kind.MEMFD)) {
                assertThrows(IllegalArgumentException.class, () -> SharedMemory.create(kind, nameFor(kind) + "new" + end, 4096));
            }
            assertFalse(Files.exists(Path.of(nameFor(Kind.FILE) + "new")));
            assertFalse(Files.exists(Path.of("/dev/shm" + nameFor(Kind.POSIX) + "new")));
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 7, 64, 4097, (2 << 20) + 3})
    void clearingLeavesNothing(long size) throws IOException {
        try (var memory = SharedMemory.create(Kind.MEMFD, "cleared", size)) {
            memory.segment().fill((byte) 0xff);
            memory.clear();
            for (long at = 0; at < size; at++) {
                assertEquals(0, memory.segment().get(JAVA_BYTE, at));
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void afterClosingItThrowsAndItsNameIsGone(Kind kind) throws IOException {
        var memory = SharedMemory.create(kind, nameFor(kind), 4096);
        var segment = memory.segment();
        String name = memory.name();
        memory.close();
        memory.close();
        assertThrows(IllegalStateException.class, () -> segment.get(JAVA_LONG, 0));
        assertThrows(IllegalStateException.class, memory::clear);
        assertThrows(IOException.class, () -> SharedMemory.open(kind, name));
    }

    @ParameterizedTest
    @EnumSource
    void theGlobalSegmentOutlivesClosing(Kind kind) throws IOException {
        var memory = SharedMemory.create(kind, nameFor(kind), 10_000);
        try (var other = SharedMemory.open(kind, memory.name())) {
            var global = memory.globalSegment();
            assertEquals(10_000, global.byteSize());
            var segment = memory.segment();
            String name = memory.name();
            memory.close();
            assertThrows(IllegalStateException.class, () -> segment.get(JAVA_BYTE, 0));
            assertThrows(IllegalStateException.class, memory::globalSegment);
            // After close, only a System V segment can be opened, because Linux finds it by its id while any process
            // has it mapped.
            if (kind != Kind.SYSV) {
                assertThrows(IOException.class, () -> SharedMemory.open(kind, name));
            }
            global.set(JAVA_BYTE, 9_999, (byte) 7);
            assertEquals(7, other.segment().get(JAVA_BYTE, 9_999));
            assertThrows(IndexOutOfBoundsException.class, () -> global.get(JAVA_BYTE, 10_000));
        }
    }

    @ParameterizedTest
    @EnumSource
    void outsideItThrows(Kind kind) throws IOException {
        try (var memory = SharedMemory.create(kind, nameFor(kind), 10)) {
            assertThrows(IndexOutOfBoundsException.class, () -> memory.segment().get(JAVA_BYTE, 10));
            assertThrows(IndexOutOfBoundsException.class, () -> memory.segment().get(JAVA_BYTE, -1));
        }
        assertThrows(IllegalArgumentException.class, () -> SharedMemory.create(kind, nameFor(kind), 0));
    }

    @Test
    void whatIsThereIsNotTakenOver() throws IOException {
        for (Kind kind : new Kind[] {Kind.POSIX, Kind.FILE}) {
            try (var first = SharedMemory.create(kind, nameFor(kind), 4096)) {
                first.segment().set(JAVA_BYTE, 0, (byte) 1);
                var refused =
                        assertThrows(SystemCallException.class, () -> SharedMemory.create(kind, nameFor(kind), 1));
                assertEquals(EEXIST, refused.errno());
                assertTrue(refused.getMessage().contains(first.name()), refused.getMessage());
                assertEquals(4096, first.size());
                assertEquals(1, first.segment().get(JAVA_BYTE, 0));
            }
        }
    }

    @Test
    void whatIsNotThereSaysSo() throws IOException {
        String missing = folder.resolve("missing").toString();
        var refused = assertThrows(SystemCallException.class, () -> SharedMemory.open(Kind.FILE, missing));
        assertEquals(ENOENT, refused.errno());
        assertEquals("open", refused.call());
        assertThrows(IllegalArgumentException.class, () -> SharedMemory.open(Kind.SYSV, "seven"));
        assertThrows(IllegalArgumentException.class, () -> SharedMemory.create(Kind.POSIX, "no-slash", 1));
        Path empty = Files.createFile(folder.resolve("empty"));
        assertThrows(IOException.class, () -> SharedMemory.open(Kind.FILE, empty.toString()));
    }

    @Test
    void aSealedFileKeepsItsSize() throws IOException {
        try (var memory = SharedMemory.create(Kind.MEMFD, "sealed", 8192)) {
            memory.seal();
            try (var file = new java.io.RandomAccessFile(memory.name(), "rw")) {
                assertThrows(IOException.class, () -> file.setLength(0));
            }
            assertEquals(0, memory.segment().get(JAVA_BYTE, 8191));
        }
        try (var memory = SharedMemory.create(Kind.SYSV, "", 8192)) {
            assertThrows(UnsupportedOperationException.class, memory::seal);
            memory.populate();
        }
    }

    @Test
    void aThreadThatIsInsideIsNotPulledFromUnder() throws Exception {
        var memory = SharedMemory.create(Kind.MEMFD, "busy", 1 << 20);
        var seen = new java.util.concurrent.atomic.AtomicReference<Throwable>();
        var reader = new Thread(() -> {
            try {
                while (true) {
                    memory.segment().asSlice(0, 1 << 19).mismatch(memory.segment().asSlice(1 << 19));
                }
            } catch (Throwable end) {
                seen.set(end);
            }
        });
        reader.start();
        Thread.sleep(50);
        closeWhenPossible(memory);
        reader.join(120_000);
        assertFalse(reader.isAlive());
        assertTrue(seen.get() instanceof IllegalStateException, String.valueOf(seen.get()));
    }

    /** Closes the memory. Repeats the call while it fails because a thread is inside a bulk operation. */
    private static void closeWhenPossible(SharedMemory memory) throws InterruptedException {
        for (int attempt = 0; attempt < 60_000; attempt++) {
            try {
                memory.close();
                return;
            } catch (IllegalStateException inUse) {
                Thread.sleep(1);
            }
        }
        throw new AssertionError("never to be closed");
    }
}
