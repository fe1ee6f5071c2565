package dev.thalweg.bench;

import java.io.IOException;
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
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/**
 * Clears a mapped file with an array of zeros, as in the article. A large one needs a heap: {@code -jvmArgs -Xmx4g}.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
public class ArrayClears {
    @Param("65536")
    public int bytes;

    private MappedByteBuffer buffer;
    private byte[] zeros;

    @Setup
    public void make() throws IOException {
        Path file = Files.createTempFile("thalweg-jmh", null);
        try (var channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            buffer = channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes);
        } finally {
            Files.delete(file);
        }
        zeros = new byte[bytes];
        buffer.put(0, zeros);
    }

    /** As published: a new array each time. */
    @Benchmark
    public void newArray() {
        buffer.put(0, new byte[bytes]);
    }

    @Benchmark
    public void oneArray() {
        buffer.put(0, zeros);
    }
}
