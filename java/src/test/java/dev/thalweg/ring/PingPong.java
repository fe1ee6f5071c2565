package dev.thalweg.ring;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;

import dev.thalweg.SystemCallException;

/**
 * Sends a message to another process and back, over two rings, for measurements on an idle machine. The other process
 * may be the example {@code pingpong} of crates/channel, which accepts the arguments below:
 *
 * <pre>{@code PingPong ping|pong DIR [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]}</pre>
 *
 * <p>{@code pong} listens and answers until {@code ping} closes its ring. {@code ping} prints the nanoseconds of a
 * round trip: the median over the batches, the smallest and the largest.
 */
final class PingPong {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private PingPong() {}

    public static void main(String[] told) throws IOException {
        if (told.length < 2) {
            System.err.println("usage: PingPong ping|pong DIR [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]");
            System.exit(2);
        }
        Path place = Path.of(told[1]);
        Options options = Options.USUAL.withWait(switch (word(told, 2, "hybrid")) {
            case "spin" -> Wait.SPIN;
            case "block" -> Wait.BLOCK;
            default -> Wait.HYBRID;
        });
        if (told[0].equals("pong")) {
            pong(place, options);
            return;
        }
        int rounds = Integer.parseInt(word(told, 3, "100000"));
        int batches = Integer.parseInt(word(told, 4, "21"));
        ping(place, options, rounds, new double[batches], Integer.parseInt(word(told, 5, "64")));
    }

    private static String word(String[] told, int at, String otherwise) {
        return told.length > at ? told[at] : otherwise;
    }

    private static void ping(Path place, Options options, int rounds, double[] times, int bytes) throws IOException {
        var message = MemorySegment.ofArray(new byte[bytes]);
        try (var there = patiently(() -> Producer.connect(place.resolve("there"), options, PATIENCE));
                var back = patiently(() -> Consumer.connect(place.resolve("back"), options, PATIENCE))) {
            // The first batches warm up the compilers.
            for (int batch = 0; batch < 5; batch++) {
                batch(there, back, message, rounds);
            }
            for (int batch = 0; batch < times.length; batch++) {
                times[batch] = batch(there, back, message, rounds);
            }
        }
        Arrays.sort(times);
        System.out.printf("%.1f ns [%.1f-%.1f]%n", times[times.length / 2], times[0], times[times.length - 1]);
    }

    private interface Opening<T> {
        T open() throws IOException;
    }

    /** Connects, and retries while no process listens yet. */
    private static <T> T patiently(Opening<T> opening) throws IOException {
        Deadline end = Deadline.in(PATIENCE);
        while (true) {
            try {
                return opening.open();
            } catch (SystemCallException nobody) {
                if (end.isOver()) {
                    throw nobody;
                }
                Link.pause(20);
            }
        }
    }

    private static double batch(Producer there, Consumer back, MemorySegment message, int rounds) throws IOException {
        long begin = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            there.send(message);
            try (var answer = back.receive()) {
                if (answer.length() != message.byteSize()) {
                    throw new AssertionError("an answer of " + answer.length() + " bytes");
                }
            }
        }
        return (double) (System.nanoTime() - begin) / rounds;
    }

    private static void pong(Path place, Options options) throws IOException {
        try (var thereListener = Listener.bind(place.resolve("there"));
                var backListener = Listener.bind(place.resolve("back"));
                var there = Consumer.accept(thereListener, options, PATIENCE);
                var back = Producer.accept(backListener, options, PATIENCE)) {
            while (true) {
                try (var message = there.receive()) {
                    back.send(message.segment());
                } catch (RingException.Closed done) {
                    return;
                }
            }
        }
    }
}
