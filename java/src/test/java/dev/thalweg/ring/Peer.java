package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * One end of a ring in a separate process, for tests in any language:
 *
 * <pre>{@code Peer produce|consume host|connect PATH COUNT WORD...}</pre>
 *
 * <p>Sends or checks COUNT {@link Messages}; -1 means without end. Words: {@code spin} or {@code block} (otherwise
 * hybrid), {@code untrusted}, {@code checksums}, {@code link} (works as if futex_waitv did not exist). After its last
 * message, a producer stays ({@code stay}), exits without closing ({@code exit}), or otherwise closes the ring. The
 * program prints {@code ready} when it listens, {@code open} when the ring is open, and how the ring ended. It exits by
 * itself after a long time.
 */
final class Peer {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Duration FAR_TOO_LONG = Duration.ofMinutes(10);

    private final boolean hosts;
    private final Path path;
    private final long count;
    private final List<String> words;

    private Peer(String[] told) {
        hosts = told[1].equals("host");
        path = Path.of(told[2]);
        count = Long.parseLong(told[3]);
        words = List.of(told).subList(4, told.length);
        Futex.allowed &= !words.contains("link");
    }

    public static void main(String[] told) throws IOException {
        var peer = new Peer(told);
        Thread.ofPlatform().daemon().start(Peer::endSomeDay);
        try {
            if (told[0].equals("produce")) {
                peer.produce();
            } else {
                peer.consume();
            }
        } catch (RingException.PeerDied died) {
            System.out.println("died " + died.delivered() + " " + died.partial());
        } catch (RingException.Closed closed) {
            System.out.println("closed " + closed.delivered());
        }
    }

    private static void endSomeDay() {
        long end = System.nanoTime() + FAR_TOO_LONG.toNanos();
        while (System.nanoTime() < end) {
            LockSupport.parkNanos(FAR_TOO_LONG.toNanos());
        }
        System.err.println("no end after " + FAR_TOO_LONG);
        Runtime.getRuntime().halt(3);
    }

    private Options options() {
        Options options = Options.USUAL.withCapacity(16384);
        options = words.contains("untrusted") ? options.untrusted() : options;
        options = words.contains("checksums") ? options.withChecksums() : options;
        options = words.contains("spin") ? options.withWait(Wait.SPIN) : options;
        return words.contains("block") ? options.withWait(Wait.BLOCK) : options;
    }

    private Listener listen() throws IOException {
        var listener = Listener.bind(path);
        System.out.println("ready");
        return listener;
    }

    private Producer openProducer() throws IOException {
        if (!hosts) {
            return Producer.connect(path, options(), PATIENCE);
        }
        try (var listener = listen()) {
            return Producer.accept(listener, options(), PATIENCE);
        }
    }

    private Consumer openConsumer() throws IOException {
        if (!hosts) {
            return Consumer.connect(path, options(), PATIENCE);
        }
        try (var listener = listen()) {
            return Consumer.accept(listener, options(), PATIENCE);
        }
    }

    private void produce() throws IOException {
        var producer = openProducer();
        System.out.println("open");
        for (long seq = 0; seq != count; seq++) {
            byte[] message = Messages.message(seq);
            if (seq % 2 == 0) {
                producer.send(message);
                continue;
            }
            try (var loan = producer.loan(message.length)) {
                MemorySegment.copy(message, 0, loan.segment(), JAVA_BYTE, 0, message.length);
                loan.commit();
            }
        }
        if (words.contains("exit")) {
            System.exit(0);
        }
        while (words.contains("stay")) {
            LockSupport.park();
        }
        producer.drain(PATIENCE);
        producer.close();
        System.out.println("sent " + count);
    }

    private void consume() throws IOException {
        try (var consumer = openConsumer()) {
            System.out.println("open");
            for (long seq = 0; seq != count; seq++) {
                MemorySegment due = MemorySegment.ofArray(Messages.message(seq));
                try (var sample = consumer.receive()) {
                    if (sample.length() != due.byteSize() || sample.segment().mismatch(due) >= 0) {
                        throw new AssertionError("message " + seq + " is torn");
                    }
                }
            }
            System.out.println("received " + count);
        }
    }
}
