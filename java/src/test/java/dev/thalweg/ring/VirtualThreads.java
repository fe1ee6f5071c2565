package dev.thalweg.ring;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.FutureTask;

/**
 * Two rings with all four ends in virtual threads of this process, which may have a single carrier: {@code
 * VirtualThreads PATH}.
 */
final class VirtualThreads {
    private static final int MESSAGES = 2000;
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    public static void main(String[] told) throws Exception {
        // A thread whose calls never wait would occupy the carrier thread, so these threads make calls that wait.
        var tasks = new ArrayList<FutureTask<Boolean>>();
        for (int ring = 0; ring < 2; ring++) {
            Path path = Path.of(told[0] + ring);
            var listener = Listener.bind(path);
            tasks.add(new FutureTask<>(() -> consume(listener)));
            tasks.add(new FutureTask<>(() -> produce(path)));
        }
        for (var task : tasks) {
            Thread.ofVirtual().start(task);
        }
        var other = new FutureTask<>(() -> true);
        Thread.ofVirtual().start(other);
        System.out.println("other ran: " + other.get());
        for (var task : tasks) {
            task.get();
        }
        System.out.println("received " + 2 * MESSAGES);
    }

    private static boolean consume(Listener listener) throws Exception {
        try (listener;
                var consumer = Consumer.accept(listener, Options.USUAL, PATIENCE)) {
            // An interrupt does not end a wait, and does not turn it into a busy wait.
            Thread.currentThread().interrupt();
            for (int number = 0; number < MESSAGES; number++) {
                try (var sample = number % 2 == 0 ? consumer.receive() : consumer.receive(PATIENCE)) {
                    if (sample.length() != number % 5000) {
                        throw new AssertionError("message " + number);
                    }
                }
            }
            return Thread.interrupted();
        }
    }

    private static boolean produce(Path path) throws Exception {
        try (var producer = Producer.connect(path, Options.USUAL.withCapacity(16384), PATIENCE)) {
            for (int number = 0; number < MESSAGES; number++) {
                producer.send(new byte[number % 5000]);
            }
            producer.drain(PATIENCE);
            return true;
        }
    }
}
