package dev.thalweg.ring;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;

/** Both ends of a ring in this process. */
record Pair(Producer producer, Consumer consumer, End producing, End consuming) implements AutoCloseable {
    static Pair of(Options options) throws IOException {
        Link[] links = Link.pair();
        var offering = CompletableFuture.supplyAsync(() -> {
            try {
                return Handshake.offer(links[0], options, () -> Deadline.NEVER);
            } catch (IOException failure) {
                throw new AssertionError(failure);
            }
        });
        End consuming = Handshake.accept(links[1], options, () -> Deadline.NEVER);
        End producing = offering.join();
        return new Pair(new Producer(producing), new Consumer(consuming, options), producing, consuming);
    }

    @Override
    public void close() {
        producer.close();
        consumer.close();
    }
}
