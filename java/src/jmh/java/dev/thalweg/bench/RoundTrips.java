package dev.thalweg.bench;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
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

import dev.thalweg.SystemCallException;
import dev.thalweg.ring.Consumer;
import dev.thalweg.ring.Options;
import dev.thalweg.ring.Producer;
import dev.thalweg.ring.Wait;

/**
 * Sends a message of 64 bytes to another process and back, over two rings. {@code peers/pingpong} compares languages.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
public class RoundTrips {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** Wait method of both sides; {@code block} is also possible. */
    @Param({"spin", "hybrid"})
    public String wait;

    /** {@code java}, or a program with the arguments of the examples named pingpong. */
    @Param("java")
    public String partner;

    private final MemorySegment message = MemorySegment.ofArray(new byte[64]);
    private Path folder;
    private Process other;
    private Producer there;
    private Consumer back;

    /** Starts the other process and connects to it. */
    @Setup
    public void join() throws IOException, InterruptedException {
        folder = Files.createTempDirectory("thalweg-jmh");
        var command = new ArrayList<String>(partner.equals("java") ? java() : List.of(partner));
        command.addAll(List.of("pong", folder.toString(), wait));
        other = new ProcessBuilder(command).inheritIO().start();
        Options options = Options.USUAL.withWait(switch (wait) {
            case "spin" -> Wait.SPIN;
            case "block" -> Wait.BLOCK;
            default -> Wait.HYBRID;
        });
        there = opened(() -> Producer.connect(folder.resolve("there"), options, PATIENCE));
        back = opened(() -> Consumer.connect(folder.resolve("back"), options, PATIENCE));
    }

    private static List<String> java() {
        String program = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String places = System.getProperty("java.class.path");
        return List.of(program, "--enable-native-access=ALL-UNNAMED", "-cp", places, "dev.thalweg.ring.PingPong");
    }

    private interface Opening<T> {
        T open() throws IOException;
    }

    /** Retries until the other process listens. */
    private <T> T opened(Opening<T> opening) throws IOException, InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            try {
                return opening.open();
            } catch (SystemCallException nobody) {
                if (!other.isAlive() || System.nanoTime() > end) {
                    throw nobody;
                }
                Thread.sleep(20);
            }
        }
    }

    /** The other process ends when its ring is closed. */
    @TearDown
    public void leave() throws IOException, InterruptedException {
        there.close();
        if (!other.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
            other.destroyForcibly();
        }
        back.close();
        Files.delete(folder);
    }

    @Benchmark
    public long roundTrip() throws IOException {
        there.send(message);
        try (var answer = back.receive()) {
            return answer.length();
        }
    }
}
