package dev.thalweg.bench;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

import dev.thalweg.SharedMemory;

/** Writes a byte at a random place of 64 KiB, like the C program of study 001. Three shifts select the place. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
@OperationsPerInvocation(RandomWrites.WRITES)
public class RandomWrites {
    static final int WRITES = 10_000;
    private static final int BYTES = 1 << 16;
    private static final byte MARK = 0b01010101;

    private long state = 88172645463325252L;
    private SharedMemory memory;
    private byte[] array;
    private MappedByteBuffer buffer;

    /** Everything is allocated and resident. */
    @Setup
    public void make() throws IOException {
        memory = SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-jmh", BYTES);
        memory.populate();
        array = new byte[BYTES];
        Path file = Files.createTempFile("thalweg-jmh", null);
        try (var channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            buffer = channel.map(FileChannel.MapMode.READ_WRITE, 0, BYTES);
        } finally {
            Files.delete(file);
        }
        buffer.put(0, array);
    }

    /** The garbage collector frees the buffer. */
    @TearDown
    public void close() {
        memory.close();
    }

    private static long next(long x) {
        x ^= x << 13;
        x ^= x >>> 7;
        return x ^ x << 17;
    }

    /** Selects places without writing. */
    @Benchmark
    public long generator() {
        long x = state;
        long sum = 0;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            sum += x & BYTES - 1;
        }
        state = x;
        return sum;
    }

    @Benchmark
    public void segment() {
        MemorySegment to = memory.segment();
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            to.set(ValueLayout.JAVA_BYTE, x & BYTES - 1, MARK);
        }
        state = x;
    }

    @Benchmark
    public void array() {
        byte[] to = array;
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            to[(int) (x & BYTES - 1)] = MARK;
        }
        state = x;
    }

    @Benchmark
    public void mappedByteBuffer() {
        MappedByteBuffer to = buffer;
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            to.put((int) (x & BYTES - 1), MARK);
        }
        state = x;
    }
}
