package dev.thalweg.bench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;

import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

import dev.thalweg.SharedMemory;

/** Clearing shared memory: this module, the JDK's own fill, and the article's new array each time. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(value = 5, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class Clear {
    /** Bytes. */
    @Param({"65536", "1073741824"})
    public int bytes;

    private SharedMemory memory;
    private ByteBuffer buffer;
    private byte[] zeros;

    /** Memory whose pages are there. */
    @Setup
    public void make() throws IOException {
        memory = SharedMemory.create(SharedMemory.Kind.MEMFD, "clear", bytes);
        memory.populate();
        buffer = memory.segment().asByteBuffer().order(ByteOrder.nativeOrder());
        zeros = new byte[bytes];
    }

    /** Gives it back. */
    @TearDown
    public void close() {
        memory.close();
    }

    /** The C library's memset. */
    @Benchmark
    public void memset() {
        memory.clear();
    }

    /** MemorySegment.fill. */
    @Benchmark
    public void fill() {
        memory.segment().fill((byte) 0);
    }

    /** One array for all times. */
    @Benchmark
    public void reused() {
        buffer.put(0, zeros);
    }

    /** A new array each time, as article 001 has it. */
    @Benchmark
    public void published() {
        buffer.put(0, new byte[bytes]);
    }
}
