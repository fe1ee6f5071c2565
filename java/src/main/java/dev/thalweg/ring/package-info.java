/**
 * Messages between two processes over sealed shared memory, in the format of {@code docs/reference/formats.md}: the other end may
 * be written in Rust, C or Java.
 *
 * <p>A {@link dev.thalweg.ring.Producer} writes messages, a {@link dev.thalweg.ring.Consumer} reads them where they
 * were written. A unix socket introduces the two and stays open as long as the ring; no message goes through it. Both
 * ends must be processes of one user.
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
 * <p>An end is for one thread at a time; only {@code close()} may be called by another, and ends a wait. A waiting
 * thread does not hear {@link java.lang.Thread#interrupt()}. After {@code close()} everything throws
 * {@link java.lang.IllegalStateException}, segments too; nothing that the other side does ends the JVM.
 */
package dev.thalweg.ring;
