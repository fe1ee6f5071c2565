/**
 * Messages between two processes over sealed shared memory, in the format of {@code docs/reference/formats.md}. The
 * other end may be written in Rust, C, Java or Python.
 *
 * <p>A {@link dev.thalweg.ring.Producer} writes messages, and a {@link dev.thalweg.ring.Consumer} reads them in place.
 * A Unix socket connects the two and stays open as long as the ring; messages do not go through it. Both ends must be
 * processes of one user.
 *
 * <pre>{@code
 * // One process:
 * try (var producer = Producer.host(Path.of("/run/user/1000/quotes"), Options.USUAL, Duration.ofSeconds(30));
 *         var loan = producer.loan(64)) {
 *     loan.segment().set(ValueLayout.JAVA_LONG, 0, 42);
 *     loan.commit();
 * }
 * // Another, in any language:
 * try (var consumer = Consumer.connect(Path.of("/run/user/1000/quotes"), Options.USUAL);
 *         var sample = consumer.receive()) {
 *     System.out.println(sample.segment().get(ValueLayout.JAVA_LONG, 0));
 * }
 * }</pre>
 *
 * <p>One thread at a time may use an end. Any thread may call {@code close()}, which ends a wait.
 * {@link java.lang.Thread#interrupt()} does not end a wait. After {@code close()} all methods throw
 * {@link java.lang.IllegalStateException}, and so do segments. Nothing that the peer does ends the JVM.
 */
package dev.thalweg.ring;
