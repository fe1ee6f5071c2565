package dev.thalweg.bench;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.util.Random;
import java.util.concurrent.TimeUnit;

import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
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

/** One byte at a random place of 64 KiB of shared memory, again and again: the writes of study 001. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(value = 5, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class Write {
    private static final int BYTES = 1 << 16;
    private static final int WRITES = 10_000;
    private static final byte MARK = 0b01010101;
    private static final VarHandle BYTE = ValueLayout.JAVA_BYTE.varHandle();

    private final Random random = new Random();
    private final byte[] one = new byte[1];
    private SharedMemory memory;
    private ByteBuffer buffer;
    private long state = 88172645463325252L;

    /** Memory whose pages are there. */
    @Setup
    public void make() throws IOException {
        memory = SharedMemory.create(SharedMemory.Kind.MEMFD, "write", BYTES);
        memory.populate();
        buffer = memory.segment().asByteBuffer();
    }

    /** Gives it back. */
    @TearDown
    public void close() {
        memory.close();
    }

    private static long next(long x) {
        x ^= x << 13;
        x ^= x >>> 7;
        return x ^ x << 17;
    }

    /** MemorySegment.set. */
    @Benchmark
    @OperationsPerInvocation(WRITES)
    public void set() {
        MemorySegment to = memory.segment();
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            to.set(ValueLayout.JAVA_BYTE, x & BYTES - 1, MARK);
        }
        state = x;
    }

    /** VarHandle.setRelease. */
    @Benchmark
    @OperationsPerInvocation(WRITES)
    public void release() {
        MemorySegment to = memory.segment();
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            BYTE.setRelease(to, x & BYTES - 1, MARK);
        }
        state = x;
    }

    /** ByteBuffer.put. */
    @Benchmark
    @OperationsPerInvocation(WRITES)
    public void put() {
        ByteBuffer to = buffer;
        long x = state;
        for (int i = 0; i < WRITES; i++) {
            x = next(x);
            to.put((int) x & BYTES - 1, MARK);
        }
        state = x;
    }

    /** As article 001 has it. */
    @Benchmark
    @OperationsPerInvocation(WRITES)
    public void published() {
        for (int i = 0; i < WRITES; i++) {
            int pos = random.nextInt(BYTES);
            buffer.position(pos);
            buffer.get(one, 0, 1);
            one[0] = MARK;
            buffer.position(pos);
            buffer.put(one, 0, 1);
        }
    }

    /** Its generator alone. */
    @Benchmark
    @OperationsPerInvocation(WRITES)
    public long generator() {
        long sum = 0;
        for (int i = 0; i < WRITES; i++) {
            sum += random.nextInt(BYTES);
        }
        return sum;
    }
}
