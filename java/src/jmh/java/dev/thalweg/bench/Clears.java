package dev.thalweg.bench;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
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
import dev.thalweg.internal.Libc;

/** Sets shared memory to zero. Study 001 compares this with the published variant. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
public class Clears {
    /** The small sizes show where a call of native code becomes worthwhile. */
    @Param({"16", "64", "256", "1024", "4096", "65536", "1073741824"})
    public long bytes;

    private SharedMemory memory;

    @Setup
    public void make() throws IOException {
        memory = SharedMemory.create(SharedMemory.Kind.MEMFD, "thalweg-jmh", bytes);
        memory.populate();
    }

    @TearDown
    public void close() {
        memory.close();
    }

    @Benchmark
    public void sharedMemoryClear() {
        memory.clear();
    }

    /** Calls memset for every size. {@code sharedMemoryClear} calls it for large sizes only. */
    @Benchmark
    public void memset() {
        Libc.memset(memory.segment(), (byte) 0);
    }

    @Benchmark
    public void segmentFill() {
        memory.segment().fill((byte) 0);
    }
}
